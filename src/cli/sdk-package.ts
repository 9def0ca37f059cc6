import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { version } from "../kit/version.ts";
import { bun, inFolder, root } from "./from-tree.ts";

/** The SDK as a package to install, made of the tree. The executable has one inside (build/binary.ts). */
export const sdkPackage = (): Promise<Uint8Array> =>
  inFolder(async (folder) => {
    await bun(root, "run", "src/build/sdk.ts", folder);
    await bun(folder, "pm", "pack", "--ignore-scripts");
    return await readFile(join(folder, `svc-${version}.tgz`));
  });
