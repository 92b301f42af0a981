// What is wrong with an open page of the site for its reader: a list of sentences.
// Code of 80 characters fits from 1280 pixels on; contrast is that of WCAG AA: 4.5, and 3 for large text.
(() => {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} pixels wide in a window of ${root.clientWidth}`);
  for (const box of document.querySelectorAll(".md-content pre > code, .md-content .md-typeset__scrollwrap")) {
    if (box.scrollWidth <= box.clientWidth) continue;
    const longest = Math.max(...box.textContent.split("\n").map((line) => line.length));
    const start = box.textContent.trim().slice(0, 40);
    if (!/auto|scroll/.test(getComputedStyle(box).overflowX)) found.push(`cut, and does not scroll: ${start}`);
    if (box.tagName === "CODE" && innerWidth >= 1280 && longest <= 80) found.push(`${longest} characters do not fit: ${start}`);
  }
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, bottom) => top.slice(0, 3).map((value, i) => (value * top[3] + bottom[i] * (255 - top[3])) / 255);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const colour = rgba(getComputedStyle(element).backgroundColor);
    return colour[3] === 255 ? colour.slice(0, 3) : over(colour, behind(element.parentElement));
  };
  const seen = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || /^(SCRIPT|STYLE|TITLE)$/.test(element.tagName) || element.closest("svg, [hidden], .headerlink, .md-search__output, .md-skip, .md-tooltip2")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const levels = [luminance(over(rgba(style.color), ground)), luminance(ground)];
    const contrast = (Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const where = `${element.tagName.toLowerCase()}.${element.className}`;
    if (contrast < least && !seen.has(where)) {
      seen.add(where);
      found.push(`contrast ${contrast.toFixed(2)} of ${where}: ${texts.currentNode.textContent.trim().slice(0, 40)}`);
    }
  }
  return found;
})()
