import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "../../..");

export const pageFiles = {
  "push-protocol": "proto/README.md",
  "function-authoring": "src/sdk/README.md",
} as const;

/** The executable has the pages inside (build/binary.ts). */
export function pageText(topic: keyof typeof pageFiles): string {
  const file = join(root, pageFiles[topic]);
  if (!existsSync(file)) throw new Error(`${pageFiles[topic]} is not installed beside svc`);
  return readFileSync(file, "utf8");
}
