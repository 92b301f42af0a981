// Runs checks by their names, all of them, and ends with 1 if one failed.

/** @param {Record<string, () => void>} checks */
export function run(checks) {
  for (const [name, check] of Object.entries(checks)) {
    try {
      check();
    } catch (error) {
      console.error(`${name}\n${error.stack}`);
      process.exitCode = 1;
    }
  }
}
