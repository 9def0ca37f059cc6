import { resolve } from "node:path";
import { type Plant, plants, plantVariable } from "./world-plants.ts";

// Preloaded: files of the product are read with the faults that are named. A fault that has no place any more ends the program.

const wanted = process.env[plantVariable]!.split(";");
const chosen = Map.groupBy(
  plants.filter(({ name }) => wanted.includes(name)),
  ({ file }) => resolve(import.meta.dir, "../..", file),
);

const withPlants = (text: string, faults: readonly Plant[]): string =>
  faults.reduce((now, { name, from, to }) => {
    const parts = now.split(from);
    if (parts.length !== 2) throw new Error(`there are ${parts.length - 1} places for "${name}"`);
    return parts.join(to);
  }, text);

for (const [path, faults] of chosen)
  Bun.plugin({
    name: path,
    setup(build) {
      const filter = new RegExp(`^${path.replaceAll(/[.\\/]/g, "\\$&")}$`);
      build.onLoad({ filter }, async () => ({
        contents: withPlants(await Bun.file(path).text(), faults),
        loader: "ts",
      }));
    },
  });
