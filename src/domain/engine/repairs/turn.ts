import type { Starter } from "../../../kit/caller.ts";
import type { Clock } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { type Store, StoreError } from "../../../store/store.ts";
import type { SelectRuns } from "../runs/list-runs.ts";
import { type ActDeps, type Acted, type Acting, actOn, LostRepair, type StarterRights } from "./act.ts";
import {
  repairItemsMax,
  repairItemsPerSecond,
  repairLeaseMs,
  repairQueuedMax,
  repairSliceMax,
  repairTriesMax,
  repairTurnMs,
  repairWaitMs,
  selectSliceMax,
} from "./limits.ts";
import { replayAction } from "./replays/rules.ts";
import { type ReplayTurnDeps, replaySlice } from "./replays/turn.ts";
import * as rows from "./rows.ts";
import {
  noCounts,
  type RepairAction,
  type RepairCounts,
  type RepairRequest,
  type SliceEnd,
} from "./rules.ts";

export interface RepairTurnDeps extends ActDeps, ReplayTurnDeps {
  store: Store;
  clock: Clock;
  log: Log;
  select: SelectRuns;
  /** Looked up again; undefined when the starter may not do it any more. */
  rightsOf: (
    starter: Starter,
    repair: { environmentId: string; action: string; request: object },
  ) => Promise<StarterRights | undefined>;
  /** Whether the node gives back what it holds. */
  isStopped: () => boolean;
  /** Called after each commit of a step of a repair. */
  onMoved: (environmentId: string) => void;
}

export async function countsOf(
  reader: Pick<Store, "all" | "one">,
  row: rows.RepairRow,
): Promise<RepairCounts> {
  if (row.counts !== null) return JSON.parse(row.counts) as RepairCounts;
  const counts = noCounts();
  for (const { outcome, count } of await rows.countItems(reader, row)) counts[outcome] = Number(count);
  return counts;
}

/** One node's work on one repair for a few seconds, under the fence of its claim. */
export class RepairTurn {
  readonly #deps: RepairTurnDeps;
  #row: rows.RepairRow;
  readonly #request: RepairRequest;
  readonly #starter: Starter;
  /** Functions up to here had no room in their queues in this turn. */
  #functionsAfter = "";

  constructor(deps: RepairTurnDeps, row: rows.RepairRow) {
    this.#deps = deps;
    this.#row = row;
    this.#request = JSON.parse(row.request) as RepairRequest;
    this.#starter = JSON.parse(row.starter) as Starter;
  }

  /** Works until the turn is over, and gives the repair back. */
  async run(): Promise<void> {
    const { clock, isStopped } = this.#deps;
    const until = clock.elapsed() + repairTurnMs;
    try {
      let end: SliceEnd = "more";
      while (end === "more" && clock.elapsed() < until && !isStopped()) end = await this.#slice();
      if (end === "over") return;
      await this.#save({ lease_until: 0, due_at: clock.now() + (end === "later" ? repairWaitMs : 0) });
    } catch (error) {
      if (!(error instanceof LostRepair)) throw error;
    }
  }

  /** Throws `LostRepair` when the fence has grown; `also` is part of the transaction. */
  async #save(
    change: Partial<rows.RepairChange>,
    also?: (session: Parameters<Parameters<Store["write"]>[0]>[0]) => Promise<unknown>,
  ): Promise<void> {
    const { store, clock } = this.#deps;
    const now = clock.now();
    const saved = { ...this.#row, lease_until: now + repairLeaseMs, ...change };
    await store.write(async (session) => {
      if ((await rows.saveRepair(session, this.#row, saved, now)) === 0) throw new LostRepair();
      await also?.(session);
    });
    this.#row = saved;
    this.#deps.onMoved(saved.environment_id);
  }

  async #slice(): Promise<SliceEnd> {
    const { rightsOf } = this.#deps;
    const { status, phase, environment_id, action } = this.#row;
    if (status === "stopping") return this.#undo();
    const asked = { environmentId: environment_id, action, request: this.#request };
    const rights = await rightsOf(this.#starter, asked);
    if (!rights) {
      await this.#save({ status: "stopping", note: "who started it may not do this any more" });
      return "more";
    }
    if (action === replayAction)
      return replaySlice(this.#deps, {
        ...{ row: this.#row, rights },
        save: (change, also) => this.#save(change, also),
        complete: () => this.#finish("completed"),
      });
    return phase === "select" ? this.#select() : this.#work(rights);
  }

  async #finish(status: "stopped" | "completed"): Promise<SliceEnd> {
    const { store, clock, log } = this.#deps;
    const counts = await countsOf(store, this.#row);
    const note = status === "completed" ? "" : this.#row.note;
    await this.#save({ status, note, counts: JSON.stringify(counts), lease_until: 0, ended_at: clock.now() });
    const { id, environment_id: environmentId } = this.#row;
    log.info("repair.ended", { repairId: id, environmentId, status, ...counts });
    return "over";
  }

  async #undo(): Promise<SliceEnd> {
    const { store, clock } = this.#deps;
    const undone = await store.write((session) =>
      rows.undoPending(session, this.#row, selectSliceMax, clock.now()),
    );
    return undone === 0 ? this.#finish("stopped") : "more";
  }

  /** The runs that matched when the repair was started; those that end before their turn count as such. */
  async #select(): Promise<SliceEnd> {
    const { select, clock } = this.#deps;
    const { environment_id, cursor_at, cursor_id, created_at, selected: before } = this.#row;
    const filter = select.filter(environment_id, this.#request.filter);
    const until = Math.min(filter.until ?? created_at, created_at);
    const after = cursor_at === null || cursor_id === null ? undefined : { at: cursor_at, id: cursor_id };
    const page = await select.page({ ...filter, until }, { after, limit: selectSliceMax });
    const selected = before + page.length;
    if (selected > repairItemsMax) {
      const note = `more than ${repairItemsMax} runs match: a narrower filter is needed`;
      await this.#save({ status: "stopping", note });
      return "more";
    }
    const last = page.at(-1);
    const isLast = page.length < selectSliceMax;
    const items = page.map(({ id, functionId }) => ({
      runId: id,
      functionId,
      outcome: "pending" as const,
    }));
    await this.#save(
      {
        selected,
        ...(last && { cursor_at: last.createdAt, cursor_id: last.id }),
        ...(isLast && { phase: "work" }),
      },
      (session) => rows.insertItems(session, this.#row, items, clock.now()),
    );
    return "more";
  }

  async #work(rights: StarterRights): Promise<SliceEnd> {
    const { store, clock } = this.#deps;
    const { environment_id, action } = this.#row;
    const limit = repairSliceMax;
    const found = await rows.pendingItems(store, this.#row, { functionsAfter: this.#functionsAfter, limit });
    const [first] = found;
    if (!first) return this.#functionsAfter === "" ? this.#finish("completed") : "later";
    const room = await this.#roomOf(environment_id, first.function_id, action);
    if (room <= 0) {
      this.#functionsAfter = first.function_id;
      const note = `waits: ${repairQueuedMax} runs of ${first.function_id} are queued`;
      await this.#save({ note });
      return "more";
    }
    const items = found.slice(0, room);
    const acting: Acting = {
      ...{ environment_id, id: this.#row.id, fence: this.#row.fence, reason: this.#row.reason },
      ...{ action: action as RepairAction, request: this.#request, rights },
    };
    for (const item of items) {
      const begunAt = clock.elapsed();
      await this.#act(acting, item);
      this.#deps.onMoved(environment_id);
      const took = clock.elapsed() - begunAt;
      await clock.sleep(Math.max(1_000 / repairItemsPerSecond - took, took));
    }
    await this.#save({ note: "" });
    return "more";
  }

  /** How many runs may join the function's queue. */
  async #roomOf(environmentId: string, functionId: string, action: string): Promise<number> {
    if (action !== "resume" && action !== "rerun") return repairSliceMax;
    const target = { environmentId, functionId };
    return repairQueuedMax - (await rows.countQueued(this.#deps.store, target, repairQueuedMax));
  }

  async #act(acting: Acting, item: rows.PendingItem): Promise<void> {
    const acted = await this.#tried(acting, item);
    if (acted !== "again" && acted.outcome === "done") {
      this.#deps.count("done");
      return;
    }
    const isGivenUp = acted === "again" && item.tries + 1 >= repairTriesMax;
    const settled = acted === "again" ? undefined : acted;
    const outcome = settled?.outcome ?? (isGivenUp ? "failed" : "pending");
    const error = settled ? (settled.error ?? null) : `could not be done in ${item.tries + 1} tries`;
    const from = settled?.wasDone ? "done" : "pending";
    const { store, clock } = this.#deps;
    await store.write((session) =>
      rows.settleItem(session, acting, { runId: item.run_id, outcome, error, from }, clock.now()),
    );
    if (outcome !== "pending") this.#deps.count(outcome);
  }

  /** A defect that one run meets must not stop the others. */
  async #tried(acting: Acting, item: rows.PendingItem): Promise<Acted> {
    try {
      return await actOn(this.#deps, acting, item);
    } catch (error) {
      if (error instanceof LostRepair || error instanceof StoreError) throw error;
      this.#deps.log.error("repair.defect", { repairId: acting.id, runId: item.run_id, error });
      return "again";
    }
  }
}
