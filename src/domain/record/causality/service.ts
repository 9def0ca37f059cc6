import { type Fault, missing } from "../../../kit/fault.ts";
import { subtreeLookedMax, subtreeRoundsMax, subtreeRunsMax } from "./limits.ts";
import { type CausalReader, runsLedTo } from "./rows.ts";
import type { CausalDirection, CausalLink, CausalName } from "./rules.ts";
import { textOf } from "./rules.ts";
import { type CausalThing, openThings, type RunStatusOf } from "./things.ts";
import { walk } from "./walk.ts";

/** Why a caller may not see a thing; undefined: it may. */
export type Hides = (things: CausalThing["shows"]) => Promise<Fault | undefined>;

export interface CausalQuery {
  thing: CausalName;
  directions: readonly CausalDirection[];
  depth: number;
  most: number;
}

export interface CausalAnswer {
  things: CausalThing[];
  links: CausalLink[];
  isTruncated: boolean;
  hiddenCount: number;
}

export interface CancelledTree {
  cancelled: string[];
  overCount: number;
  hiddenCount: number;
  isTruncated: boolean;
}

export type Causality = ReturnType<typeof openCausality>;

export interface CausalityDeps {
  store: CausalReader;
  statusOf: RunStatusOf;
  /** False when it was over. */
  cancel: (environmentId: string, runId: string, reason: string) => Promise<boolean>;
}

/** The run and all that it led to, level by level; a run that is over stands between others as well. */
async function runsFrom(reader: CausalReader, environmentId: string, runId: string): Promise<string[]> {
  const seen = new Set([runId]);
  for (let level = [runId]; level.length > 0 && seen.size < subtreeLookedMax; ) {
    const most = subtreeLookedMax - seen.size;
    const found = await runsLedTo(reader, { environmentId, ids: level, most: most + level.length });
    level = found.flatMap(({ id }) => (seen.has(id) ? [] : id)).slice(0, most);
    for (const id of level) seen.add(id);
  }
  return [...seen];
}

const ended = new Set(["completed", "failed", "cancelled"]);

export function openCausality({ store, statusOf, cancel }: CausalityDeps) {
  const things = openThings(store, statusOf);
  return {
    /** `not_found` when the thing is unknown, and the refusal when policies keep it from the caller. */
    async explain(environmentId: string, { thing, directions, depth, most }: CausalQuery, hides: Hides) {
      const [root] = (await things(environmentId, [thing])).values();
      if (!root) throw missing(thing.kind, thing.id);
      const refused = await hides(root.shows);
      if (refused) throw refused;
      const walked = await walk(store, [thing], directions, { environmentId, depth, most });
      const found = await things(
        environmentId,
        [...walked.depths.values()].map((one) => one.thing),
      );
      const shown = new Map<string, CausalThing>();
      let hiddenCount = 0;
      for (const [text, one] of found) {
        if (await hides(one.shows)) hiddenCount++;
        else shown.set(text, { ...one, depth: walked.depths.get(text)!.depth });
      }
      return {
        things: [...shown.values()].sort((a, b) => a.depth - b.depth || a.at - b.at),
        links: [...walked.links.values()].filter(
          ({ cause, effect }) => shown.has(textOf(cause)) && shown.has(textOf(effect)),
        ),
        isTruncated: walked.isTruncated,
        hiddenCount,
      };
    },

    /**
     * Cancels the run first, then what it led to, and looks again for what those had started meanwhile. A run
     * that ends by itself meanwhile counts as over.
     */
    async cancelSubtree(
      environmentId: string,
      { runId, reason }: { runId: string; reason: string },
      hides: Hides,
    ) {
      const root: CausalName = { kind: "run", id: runId };
      const tree: CancelledTree = { cancelled: [], overCount: 0, hiddenCount: 0, isTruncated: false };
      if (!(await things(environmentId, [root])).size) throw missing("run", runId);
      const seen = new Set<string>();
      for (let round = 0; round < subtreeRoundsMax; round++) {
        const ids = await runsFrom(store, environmentId, runId);
        tree.isTruncated = ids.length >= subtreeLookedMax;
        const runs = ids.flatMap((id): CausalName[] => (seen.has(id) ? [] : [{ kind: "run", id }]));
        if (runs.length === 0) break;
        const found = await things(environmentId, runs);
        for (const run of runs) {
          if (tree.cancelled.length >= subtreeRunsMax) return { ...tree, isTruncated: true };
          seen.add(run.id);
          const known = found.get(textOf(run));
          if (!known) continue;
          if (await hides([{ type: "run", id: run.id, action: "runs:cancel" }])) tree.hiddenCount++;
          else if (ended.has(known.status) || !(await cancel(environmentId, run.id, reason)))
            tree.overCount++;
          else tree.cancelled.push(run.id);
        }
      }
      return tree;
    },
  };
}
