// Preloaded into the server under test: loads some of its files with a defect in them.
import { resolve } from "node:path";
import { plugin } from "bun";
import { plantsVariable, readerPlants, type SourcePlant } from "./reader-plants.ts";

const root = resolve(import.meta.dir, "../..");
const wanted = (process.env[plantsVariable] ?? "").split(",");
const plants: Record<string, SourcePlant> = readerPlants;

for (const [file, list] of Map.groupBy(
  wanted.map((name) => plants[name]!),
  ({ file: one }) => resolve(root, one),
))
  plugin({
    name: `plants in ${file}`,
    setup(build) {
      const filter = new RegExp(`^${file.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
      build.onLoad({ filter }, async ({ path }) => {
        let contents = await Bun.file(path).text();
        for (const { find, plant } of list) {
          if (contents.split(find).length !== 2) throw new Error(`no place in ${path} for a plant: ${find}`);
          contents = contents.replace(find, plant);
        }
        return { contents, loader: "ts" };
      });
    },
  });
