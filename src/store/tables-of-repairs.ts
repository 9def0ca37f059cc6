import { ours, type TableAbout } from "./table.ts";

export const tablesOfRepairs: Record<string, TableAbout> = {
  repair_items: {
    holds: "what a repair is to do with each of its runs, and what became of it",
    scope: "environment",
    endsWith: "their repair goes, loop `repairs.forget`",
    purge: { at: 129, key: ["environment_id", "repair_id", "run_id"], under: "repairs" },
    texts: { repair_id: ours, outcome: ours },
  },
  repairs: {
    holds: "actions on many runs: who started them, why, and how far they are",
    scope: "environment",
    endsWith: "30 days after their end, loop `repairs.forget`",
    purge: { at: 128, key: ["environment_id", "id"] },
    texts: { id: ours },
  },
};
