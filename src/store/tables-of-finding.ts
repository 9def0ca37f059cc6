import { functionIdBytesMax } from "../kit/limits.ts";
import { ours, type TableAbout, utf8 } from "./table.ts";

/** Tables of environments by which runs are found. */
export const tablesOfFinding: Record<string, TableAbout> = {
  error_groups: {
    holds: "failures of functions that look alike, counted",
    scope: "environment",
    endsWith: "their last run expires, loop `runs.expire`",
    purge: { at: 247, key: ["environment_id", "id"], under: "runs" },
    texts: { id: ours, function_id: functionIdBytesMax },
  },
  run_attribute_names: {
    holds: "names of attributes, each with its type",
    scope: "environment",
    endsWith: "their owner deletes them, loop `attributes.purge`; at most 200",
    purge: { at: 249, key: ["environment_id", "name"] },
    texts: { name: 64 },
  },
  run_attributes: {
    holds: "what runs are found by",
    scope: "environment",
    endsWith: "the run expires",
    purge: { at: 246, key: ["run_id", "name"], ofRun: "run_id" },
    texts: { name: 64, value: utf8(65) },
  },
};
