// Asks the search worker of the built site, the one that browsers run: node search.js SITE QUERY...
// Prints a JSON list: for each query, the pages that it finds, best first.
const { readFileSync, readdirSync } = require("fs");
const { join } = require("path");
const [site, ...queries] = process.argv.slice(2);
const workers = join(site, "assets", "javascripts", "workers");
const worker = readdirSync(workers).find((name) => /^search\.\w+\.min\.js$/.test(name));
let receive;
let answered;
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => { receive = listener; };
globalThis.postMessage = (message) => answered(message);
const ask = (message) => new Promise((resolve) => { answered = resolve; receive({ data: message }); });
(0, eval)(readFileSync(join(workers, worker), "utf8"));
(async () => {
  const index = JSON.parse(readFileSync(join(site, "search", "search_index.json"), "utf8"));
  await ask({ type: 0, data: { ...index, options: {} } });
  const found = [];
  for (const query of queries) {
    const { data } = await ask({ type: 2, data: query });
    found.push(data.items.slice(0, 10).map((hits) => hits[0].location.replace(/#.*/, "")));
  }
  console.log(JSON.stringify(found));
})();
