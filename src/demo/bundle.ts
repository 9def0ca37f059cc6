import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { readHistory } from "./git.ts";

// Writes this project's newest commits to commits.json, for places without git: `bun run demo:record`.
const commitsMax = 400;
const root = join(import.meta.dirname, "../..");
const commits = readHistory(root, commitsMax);
const lines = commits.map((commit) => `  ${JSON.stringify(commit)}`);
writeFileSync(join(import.meta.dirname, "commits.json"), `[\n${lines.join(",\n")}\n]\n`);
console.log(`${commits.length} commits written`);
