// Lists of which only the rows in view are in the page.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beside those in view, so that scrolling finds them drawn. */
const SPARE = 8;

/**
 * Return the box of a list, the range of its rows in view and of those to draw, and how to bring one into view.
 * @param {number} height  of a row, in pixels
 * @param {number} size  the number of rows
 */
export function useWindow(height, size) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), [seen, setSeen] = useState([0, 40]);
  const measure = () => {
    const e = box.current;
    if (!e) return;
    const first = Math.floor(e.scrollTop / height), last = Math.ceil((e.scrollTop + e.clientHeight) / height);
    setSeen((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  const reveal = (/** @type {number} */ place) => {
    const e = box.current;
    if (!e || place < 0) return;
    if (place * height < e.scrollTop) e.scrollTop = place * height;
    else if ((place + 1) * height > e.scrollTop + e.clientHeight) e.scrollTop = (place + 1) * height - e.clientHeight;
  };
  useLayoutEffect(() => {
    measure();
    const watcher = new ResizeObserver(measure);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(measure, [size]);
  return { box, seen, first: Math.max(0, seen[0] - SPARE), last: Math.min(size, seen[1] + SPARE), measure, reveal };
}
