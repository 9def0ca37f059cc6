import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { bun, inFolder, root } from "./from-tree.ts";

/** Licences of the packages that ship, made of the tree. The executable has them inside (build/binary.ts). */
export const licenceText = (): Promise<string> =>
  inFolder(async (folder) => {
    await bun(root, "run", "src/build/sbom.ts", folder);
    return await readFile(join(folder, "LICENSES.txt"), "utf8");
  });
