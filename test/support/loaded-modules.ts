/** Preloaded into a program: at its end it writes the files of all modules that it has loaded, as JSON. */
import { writeFileSync } from "node:fs";

const file = process.env.LOADED_MODULES_FILE!;
process.on("exit", () => writeFileSync(file, JSON.stringify(Object.keys(require.cache))));
