import type { HidesEvent } from "../../../../gate/things.ts";
import { type Breathe, breather } from "../../../../kit/breather.ts";
import { CelBudget } from "../../../../kit/cel/cel.ts";
import type { Clock } from "../../../../kit/clock.ts";
import type { Store } from "../../../../store/store.ts";
import type { LoggedEvent } from "../../../log/core/service.ts";
import type { Definitions, FunctionRecord, TriggerDefinition } from "../../functions/definition.ts";
import { replayItemsMax, replayPieceCharsMax, replayPieceMax, replayPieceMin } from "../limits.ts";
import * as rows from "./rows.ts";
import type { ReplayRequest } from "./rules.ts";

export interface ReplayScanDeps {
  store: Pick<Store, "all" | "one" | "seams">;
  clock: Pick<Clock, "elapsed" | "sleep">;
  eventsAt: (environmentId: string, positions: readonly number[]) => Promise<LoggedEvent[]>;
  /** The triggers for an event's name, as if the function were active and had these alone. */
  triggersAlone: (
    record: FunctionRecord,
    triggers: readonly TriggerDefinition[],
  ) => Definitions["triggersOf"];
}

/** An event with a wanted name. */
export interface ReplayLook {
  event: rows.PastEvent;
  /** Whether the replay is for it. */
  holds: boolean;
  hasRun: boolean;
  /** Its payload, where a run is to be started. */
  value?: unknown;
}

export interface ReplayScanOf {
  record: FunctionRecord;
  request: Pick<ReplayRequest, "triggers" | "again">;
  /** Whether deny policies keep the event from who replays. */
  hides: HidesEvent;
  /** Left out: only what matches is wanted, no payloads. */
  forRuns?: boolean;
}

/** Reads a piece of the log and finds what a replay starts runs of. */
export class ReplayScan {
  readonly #deps: ReplayScanDeps;
  readonly #of: ReplayScanOf;
  readonly #triggersOf: Definitions["triggersOf"];
  readonly #names: rows.NameStart;
  readonly #hasExpression: boolean;
  readonly #breathe: Breathe;

  constructor(deps: ReplayScanDeps, of: ReplayScanOf) {
    this.#deps = deps;
    this.#of = of;
    const { record, request } = of;
    this.#triggersOf = deps.triggersAlone(record, request.triggers);
    this.#names = namesOf(request.triggers);
    this.#hasExpression = request.triggers.some(({ expression }) => expression !== undefined);
    this.#breathe = breather(deps.clock, record.environmentId);
  }

  /** `reached`: every event up to there was looked at, once the looks are all read. */
  async slice(
    after: number,
    last: number,
    limit: number,
  ): Promise<{ reached: number; looks: AsyncIterable<ReplayLook> }> {
    const { store } = this.#deps;
    const { record } = this.#of;
    const { environmentId, definition } = record;
    const found = await rows.eventsBehind(store, environmentId, { after, last, names: this.#names, limit });
    const named: rows.PastEvent[] = [];
    for (const event of found)
      if (this.#triggersOf(event.name).length > 0 && !(await this.#of.hides(event))) named.push(event);
    const withRun = await rows.eventsWithRun(
      store,
      { environmentId, functionId: definition.id },
      named.map(({ id }) => id),
    );
    const reached = found.length < limit ? last : found.at(-1)!.position;
    return { reached, looks: this.#looks(named, withRun) };
  }

  async *#looks(named: readonly rows.PastEvent[], withRun: ReadonlySet<string>): AsyncGenerator<ReplayLook> {
    const { record, request, forRuns = false } = this.#of;
    const isToRead = (hasRun: boolean) => this.#hasExpression || (forRuns && (request.again || !hasRun));
    let many = replayPieceMin;
    for (let from = 0; from < named.length; ) {
      const piece = named.slice(from, from + many);
      from += piece.length;
      const wanted = piece.filter(({ id }) => isToRead(withRun.has(id))).map(({ position }) => position);
      const events = wanted.length === 0 ? [] : await this.#deps.eventsAt(record.environmentId, wanted);
      const byId = new Map(
        events.flatMap((event) => (event.redacted_at === null ? [[event.id, event]] : [])),
      );
      for (const event of piece) {
        const hasRun = withRun.has(event.id);
        const read = byId.get(event.id);
        const value: unknown = read && JSON.parse(read.data);
        // One that has to be read and is not there was redacted since, or has expired: the floor tells.
        const holds = read ? await this.#holds(read, value) : !isToRead(hasRun);
        yield { event, hasRun, holds, value };
      }
      const chars = events.reduce(
        (sum, { data, metadata }) => sum + data.length + (metadata?.length ?? 0),
        1,
      );
      const fitting = Math.floor((replayPieceCharsMax * Math.max(1, events.length)) / chars);
      many = Math.max(replayPieceMin, Math.min(fitting, replayPieceMax));
    }
  }

  /** Whether one of the triggers holds; an expression that fails does not, as with live events. */
  async #holds({ id, name, metadata, version, source, at }: LoggedEvent, data: unknown): Promise<boolean> {
    const budget = new CelBudget(replayItemsMax);
    const parsed: unknown = metadata === null ? null : JSON.parse(metadata);
    const seen = { id, name, data, metadata: parsed, version, source, timestamp: at };
    for (const trigger of this.#triggersOf(name)) {
      if (trigger.expression === undefined) return true;
      const pause = this.#breathe();
      if (pause) await pause;
      if (trigger.matches(seen, budget)) return true;
    }
    return false;
  }
}

/** What all names that the triggers match have in common. */
function namesOf(triggers: readonly TriggerDefinition[]): rows.NameStart {
  const [first, ...others] = triggers;
  const event = first?.event;
  if (event === undefined || others.some((other) => other.event !== event)) return { start: "" };
  const wide = event.search(/[*>]/);
  return wide < 0 ? { whole: event } : { start: event.slice(0, wide) };
}
