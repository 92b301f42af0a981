// Money: decimal text from the server, pico-dollars as integers of any size in between. Floats would round sums.

const PLACES = 12;

/** Return an amount in US dollars, as decimal text, in pico-dollars. @param {string | null | undefined} text */
export function pico(text) {
  if (text === null || text === undefined) return 0n;
  const [whole, part = ""] = String(text).split(".");
  const digits = BigInt(whole.replace("-", "") + part.slice(0, PLACES).padEnd(PLACES, "0"));
  return whole.startsWith("-") ? -digits : digits;
}

/** Return pico-dollars as decimal text in US dollars. @param {bigint} amount */
export function dollars(amount) {
  const digits = (amount < 0n ? -amount : amount).toString().padStart(PLACES + 1, "0");
  const part = digits.slice(-PLACES).replace(/0+$/, "");
  return `${amount < 0n ? "-" : ""}${digits.slice(0, -PLACES)}${part ? `.${part}` : ""}`;
}
