import { exportOperations } from "../domain/record/export/operations.ts";
import { openExports } from "../domain/record/export/service.ts";
import { version } from "../kit/version.ts";
import type { Host, Part } from "./part.ts";

/** What leaves the installation as a whole. */
export function openExportsPart({ store, clock, ids, log }: Host): Part {
  const exports = openExports({
    ...{ store, clock, log, newHolder: ids.uuid, version },
    memory: {
      collect: () => Bun.gc(false),
      resident: () => process.memoryUsage.rss(),
      giveBack: () => Bun.shrink(),
    },
  });
  return { operations: exportOperations(exports) };
}
