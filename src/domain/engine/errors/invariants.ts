import { integrityRowsMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { checkedGroupsMax, checkedRunsMax } from "./limits.ts";
import { miscounted, ungrouped } from "./rows.ts";

/** A run that failed is counted in its group, in the transaction of its end. */
export const errorChecks = (store: Store): IntegrityCheck[] => [
  {
    name: "errors.miscounted",
    about: "Groups of failures that count fewer than they have runs, among those seen last.",
    run: async (environmentId) =>
      violationsOf(await miscounted(store, environmentId, { limit: checkedGroupsMax, runs: checkedRunsMax })),
  },
  {
    name: "errors.ungrouped",
    about: "Failed runs whose group of failures is not there, among the newest runs.",
    run: async (environmentId) => violationsOf(await ungrouped(store, environmentId, integrityRowsMax)),
  },
];
