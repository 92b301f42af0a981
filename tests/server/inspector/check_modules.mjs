// Checks of the page's pure modules: numbers, hidden characters, the scale of time, copies of states.
//
//     node check_modules.mjs FOLDER-OF-THE-PAGE
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { run } from "./run_checks.mjs";

const page = (name) => import(pathToFileURL(`${process.argv[2]}/${name}`).href);
const { ago, count, duration, exact, line, mark, money, safe } = await page("format.js");
const { dollars, pico } = await page("money.js");
const { busyTime, scale, ticks } = await page("timeline.js");
const { COPIES, EVERY, Journal, fold } = await page("fold.js");

/** Return a journal of steps with at least some events. */
function long(size) {
  const events = [{ kind: "task_created", agent: "a", thread: "t", input: [], options: null, parent: null, seq: 1, time: 1 }];
  for (let index = 1; events.length < size; index += 1) {
    const at = () => ({ seq: events.length + 1, time: events.length + 1 });
    events.push({ kind: "step_started", step: `s${index}`, index, attempt: 1, ...at() });
    events.push({ kind: "step_completed", step: `s${index}`, last: false, output: null, reason: null, next_agent: null, ...at() });
  }
  const journal = new Journal();
  for (const event of events) journal.add(event);
  return { events, journal };
}

/** Return the state of a journal at an event, and how many events were read for it. */
function counted(journal, seq) {
  const { events } = journal;
  let read = 0;
  journal.events = { slice: (...range) => events.slice(...range).map((event) => ((read += 1), event)) };
  const state = journal.at(seq);
  journal.events = events;
  return { read, state };
}

const checks = {
  "amounts keep all their digits"() {
    assert.equal(dollars(pico("9007199.254740993001")), "9007199.254740993001");
    assert.equal(dollars(pico("0.1") + pico("0.2")), "0.3");
    assert.equal(dollars(pico(null)), "0");
    assert.equal(dollars(-pico("0.5")), "-0.5");
  },
  "numbers have at most three significant digits and thin spaces"() {
    assert.deepEqual([0, 0.4, 612, 1900, 21_800, 754_000, 7_260_000, 2 * 864e5].map(duration), ["0", "<1 ms", "612 ms", "1.90 s", "21.8 s", "12 min 34 s", "2 h 1 min", "2 d 0 h"]);
    assert.deepEqual([0, 50, 2000, 60_000].map(mark), ["0", "50 ms", "2 s", "1 min"]);
    assert.deepEqual(["0", "0.0043", "0.062", "12.5", "12345.6", null].map(money), ["$0", "$0.0043", "$0.062", "$12.50", "$12\u202f345.60", "–"]);
    assert.equal(count(1234567), "1\u202f234\u202f567");
    assert.deepEqual([30e3, 5 * 6e4, 3 * 36e5, 50 * 36e5].map((ms) => ago(1e15 - ms * 1e3, 1e12)), ["now", "5 min", "3 h", "2 d"]);
  },
  "hidden characters are visible"() {
    assert.equal(safe("a\u202eb\u200bc\u0000d"), "a⟨U+202E⟩b⟨U+200B⟩c⟨U+0000⟩d");
    assert.equal(safe("line\n\ttab é 漢 😀"), "line\n\ttab é 漢 😀");
    assert.equal(safe("tag\u{e0041}"), "tag⟨U+E0041⟩");
    assert.equal(line({ a: "x\u202e", b: [1], c: null }), "x⟨U+202E⟩, [1], null");
  },
  "a number that would be rounded stays text, where the engine tells its source"() {
    const read = (text) => JSON.parse(text, (key, value, context) => exact(key, value, context ?? { source: undefined }));
    assert.equal(read('{"a": 12, "b": 0.1}').b, 0.1);
    assert.equal(exact("", 9007199254740992, { source: "9007199254740993" }), "9007199254740993");
    assert.equal(exact("", 1e300, { source: "1e300" }), 1e300);
  },
  "gaps in which nothing ran are cut out of the scale"() {
    const hour = 3600e6, row = (began, ended) => ({ kind: "call", began, ended, call: { runs: [{ began, ended }] } });
    const axis = scale([row(0, 1e6), row(hour, hour + 1e6)], hour + 1e6);
    assert.equal(axis.busy, 2e6);
    assert.deepEqual(axis.breaks.map((gap) => gap.time), [hour - 1e6]);
    assert.ok(Math.abs(axis.x(1e6) - 0.49) < 1e-9 && Math.abs(axis.x(hour) - 0.51) < 1e-9 && axis.x(hour + 1e6) === 1);
    assert.ok(ticks(axis).every(({ x }) => x >= 0 && x <= 1));
    assert.equal(scale([], 0).x(5), 0);
  },
  "parallel parts count once and waits do not count"() {
    assert.equal(busyTime([{ began: 0, ended: 10 }, { began: 5, ended: 20 }, { began: 100, ended: null }], 130), 50);
  },
  "a journal takes each event once and in order"() {
    const journal = new Journal();
    const event = (seq) => ({ kind: "an_event_of_the_future", seq, time: seq });
    assert.deepEqual([1, 1, 3, 2, 3].map((seq) => journal.add(event(seq))), [true, false, false, true, true]);
    assert.equal(journal.head, 3);
  },
  "a state of the past does not change with later events"() {
    const { events, journal } = long(3 * EVERY);
    for (const seq of [EVERY + 2, 2, 2 * EVERY, EVERY - 1, 700, 3]) {
      const there = journal.at(seq), again = fold(events, seq);
      assert.deepEqual([...there.steps.values()].map((step) => step.status), [...again.steps.values()].map((step) => step.status));
    }
    assert.equal(journal.state.head, events.length);
  },
  "a long journal keeps few copies, and any state costs few rules"() {
    const { events, journal } = long(5 * EVERY * COPIES);
    assert.equal(journal.every, 8 * EVERY);
    assert.ok(journal.copies.length <= COPIES && journal.copies.length > COPIES / 2);
    assert.deepEqual(journal.copies.map((each) => each.head), journal.copies.map((_, place) => (place + 1) * journal.every));
    for (const seq of [40_000, 1, 2047, 2048, 2049, 39_999, 20_481]) {
      const { read, state } = counted(journal, seq);
      assert.equal(state.head, seq);
      assert.ok(read <= journal.every, `${read} events were read`);
      if (seq < 3000) assert.deepEqual([...state.steps.keys()], [...fold(events, seq).steps.keys()]);
    }
  },
};

run(checks);
