// Shapes of 16 by 16, drawn with a stroke of 1.5. Each state has a word, a shape and a colour.

const CIRCLE = "M8 1.5a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13Z";

/** The shape and the colour of each state. @type {Record<string, [string, string]>} */
export const STATES = {
  waiting: ["M8 1.200 14.800 8 8 14.800 1.200 8ZM8 5v3.300M8 10.700v.100", "wait"],
  running: [`${CIRCLE}M6.500 5.300 10.600 8l-4.100 2.700Z`, "run"],
  "between steps": [`${CIRCLE}M5 8h.010M8 8h.010M11 8h.010`, ""],
  interrupted: [`${CIRCLE}M8.800 4 6 8.400h4L7.200 12`, "odd"],
  paused: [`${CIRCLE}M6.300 5.500v5M9.700 5.500v5`, ""],
  created: [CIRCLE, ""],
  cancelled: [`${CIRCLE}M3.500 12.500l9-9`, ""],
  completed: [`${CIRCLE}M5 8.200l2.100 2.100L11.200 6`, "ok"],
  answered: [`${CIRCLE}M7 8a1 1 0 1 1 2 0 1 1 0 0 1-2 0Z`, "ok"],
  degraded: ["M8 1.800 15 14H1ZM8 6.400v3.400M8 11.900v.100", "wait"],
  failed: ["M5 1.500h6L14.500 5v6L11 14.500H5L1.500 11V5ZM5.800 5.800l4.400 4.400M10.200 5.800l-4.400 4.400", "bad"],
  unknown: [`${CIRCLE}M6.300 6.300a1.700 1.700 0 1 1 2.400 1.600c-.500.300-.700.600-.700 1.200M8 11.200v.100`, "odd"],
};

/** @type {Record<string, string>} */
export const ICONS = {
  tasks: "M2.500 4h11M2.500 8h11M2.500 12h7", inbox: "M2 9l2-6h8l2 6v4H2ZM2 9h3.500l1 2h3l1-2H14",
  fork: "M4 2.500v11M4 8h4a4 4 0 0 0 4-4V2.500M10 4.500l2-2 2 2", say: "M2 3h12v8H7l-3 2.500V11H2Z",
  hand: "M2 8h11M9.500 4.500 13 8l-3.500 3.500", limit: "M2 12h12M4 12V8M8 12V4M12 12V6", stop: "M4 4h8v8H4Z",
  pause: "M5.500 3.500v9M10.500 3.500v9", ask: "M8 1.200 14.800 8 8 14.800 1.200 8ZM8 5v3.300M8 10.700v.100",
  done: "M3 8.500 6.500 12 13 4.500", no: "M4 4l8 8M12 4l-8 8", edit: "M3 13l1-3.500L11 2.500 13.500 5l-7 7Z",
  undo: "M3 6.500h7a3.500 3.500 0 0 1 0 7H6M6 3 2.500 6.500 6 10", agent: "M8 2.500a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5ZM3 14c0-3 2-4.500 5-4.500s5 1.500 5 4.500",
  play: "M5 3.500v9l7-4.500Z", next: "M4 3.500v9l6-4.500ZM12 3.500v9", back: "M10 3.500 5.500 8l4.500 4.500", on: "M6 3.500 10.500 8 6 12.500",
  timer: `${CIRCLE}M8 4.500V8l2.500 1.500`, guard: "M8 1.500 13.500 4v4c0 3.500-2.500 5.500-5.500 6.500C5 13.500 2.500 11.500 2.500 8V4Z",
  more: "M3.500 8h.010M8 8h.010M12.500 8h.010", until: "M3 4v8l5-4ZM12 3v10", skip: "M3 4v8l5-4ZM8 4v8l5-4Z",
  open: "M6 3.500h6.500V10M12.500 3.500 5 11", again: "M13 8a5 5 0 1 1-1.500-3.600M13 2.500v3h-3", filter: "M2 4h12M4.500 8h7M7 12h2", key: "M10 2.500a3.500 3.500 0 1 1-2.400 6L3 13H1.500v-2L6.500 6.500a3.500 3.500 0 0 1 3.500-4Z",
  eye: "M1.500 8C3 5 5.300 3.500 8 3.500S13 5 14.500 8C13 11 10.700 12.500 8 12.500S3 11 1.500 8ZM6 8a2 2 0 1 1 4 0 2 2 0 0 1-4 0Z",
  cost: "M3 13V9M7 13V4M11 13V6.500M1.500 13.500h13",
  compare: "M5.500 3v10M10.500 3v10M2.500 5.500h3M10.500 10.500h3M2.500 10.500h3M10.500 5.500h3",
};
