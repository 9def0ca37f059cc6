import { Fault, tryAgain } from "../../../../kit/fault.ts";
import { openHolderLimit } from "../../../../kit/holder-limit.ts";
import type { Ids } from "../../../../kit/ids.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import type { PartitionedEvent } from "../batches.ts";
import { BuildPace } from "../fold-sizes.ts";
import {
  projectionDrainMs,
  projectionHeartbeatMs,
  projectionLeaseMs,
  projectionStreamsMax,
  projectionStuckMs,
  projectionWindowMax,
} from "../limits.ts";
import {
  type GenerationRow,
  type HeldProjection,
  holdProjection,
  type ProjectionKey,
  updateGeneration,
  updateProjection,
} from "../rows.ts";
import { buildingOf, type Runner, unknownProjection } from "../rules.ts";
import { clearPending, firstUnsaved } from "../state-rows.ts";
import { type Delivered, type Deliveries, definitionText, type RunnerAsk } from "./deliveries.ts";
import { generationOf, isAging, standingOf, takeLease } from "./leases.ts";
import { Rest } from "./signals.ts";

/** One message of a runner's stream: an event, or a heartbeat. */
export interface RunnerMessage {
  event: PartitionedEvent | undefined;
  /** Zero while another runner has the projection. */
  fence: number;
  generation: number;
  /** A generation that is folded beside the one that is read; zero for none. */
  building: number;
}

interface StreamAsk extends Omit<RunnerAsk, "partition"> {
  /** Whose limit of open streams it counts for. */
  callerId: string;
  /** Of one partition only, which is not streamed. */
  isPart: boolean;
  signal: AbortSignal;
}

interface RunnerStreamDeps extends Basics<"store" | "clock"> {
  deliveries: Deliveries;
  onDelivered: (delivered: Delivered) => void;
  isDraining: () => boolean;
}

const mustPoll = ({ name }: ProjectionKey): Fault =>
  new Fault("unimplemented", `projection "${name}" is not streamed to this runner now: poll for its events`);

const redefined = ({ name }: ProjectionKey): Fault =>
  tryAgain("aborted", `projection "${name}" was defined otherwise meanwhile: ask for its events again`);

/** How long a stream that stands by, or waits for saves, goes without a look. */
const lookMs = 1_000;

/** Throws where a runner without a name might fold onto a state of its own that is not the stored one. */
async function requireFreshMemory(
  session: Session,
  held: HeldProjection,
  generation: GenerationRow,
  runner: Runner,
  now: number,
) {
  if (runner.isNamed || held.mode !== "managed") return;
  const { holder, saved_at } = generation;
  const isSavedByAnother = holder !== null && holder !== runner.holder && now < saved_at + projectionLeaseMs;
  if (held.stale_holder === runner.holder || isSavedByAnother) throw mustPoll(held);
  if (standingOf(generation, runner, { streamId: null, now }) === "another") throw mustPoll(held);
  if (holder === runner.holder && (await firstUnsaved(session, generation))) throw mustPoll(held);
}

/** The stream of one runner. No event is sent on it twice: where one is needed again, the stream ends. */
class RunnerStream {
  readonly #deps: RunnerStreamDeps;
  readonly #ask: StreamAsk;
  readonly #id: string;
  readonly #rest: Rest;
  /** How the projection was defined at the beginning. */
  #definition: string | undefined;
  /** Undefined while another runner has the projection. */
  #own: GenerationRow | undefined;
  /** Positions of delivered events behind the cursor, in order. */
  #unsaved: number[] = [];
  /** A look that was kept short by unsaved events, of which enough are saved now. */
  #hasRoomAgain = false;
  /** When an event was last delivered, or the cursor moved. */
  #movedAt = 0;
  #cursor = -1;
  #building = 0;
  readonly #pace: BuildPace;

  constructor(deps: RunnerStreamDeps, ask: StreamAsk, { id, rest }: { id: string; rest: Rest }) {
    this.#deps = deps;
    this.#ask = ask;
    this.#id = id;
    this.#rest = rest;
    this.#pace = new BuildPace(deps, ask.key.environment_id);
  }

  /** Takes the lease where it is free, and begins behind the cursor. Throws where the runner has to poll. */
  async open(): Promise<void> {
    this.#own = await this.#acquire(true);
  }

  async *messages(): AsyncGenerator<RunnerMessage> {
    const { clock, isDraining } = this.#deps;
    const { signal } = this.#ask;
    this.#movedAt = clock.elapsed();
    yield this.#message();
    let heartbeatAt = clock.elapsed() + projectionHeartbeatMs;
    while (!signal.aborted && !isDraining()) {
      if (clock.elapsed() >= heartbeatAt) {
        heartbeatAt = clock.elapsed() + projectionHeartbeatMs;
        yield this.#message();
      }
      if (!this.#own) {
        this.#own = await this.#acquire(false);
        if (this.#own) yield this.#message();
        else await this.#rest.for(lookMs, clock);
        continue;
      }
      const told = this.#building;
      const lookedAt = clock.elapsed();
      const events = await this.#next();
      if (!events) return;
      if (this.#building !== told) yield this.#message();
      for (const event of events) {
        if (signal.aborted) return;
        yield this.#message(event);
      }
      if (events.length > 0 && this.#own.generation === this.#building)
        await clock.sleep(await this.#pace.restMs(events.at(-1)!.position, clock.elapsed() - lookedAt));
      if (this.#unsaved.length > 0 && clock.elapsed() - this.#movedAt > projectionStuckMs) return;
      if (events.length === 0 && !this.#hasRoomAgain)
        await this.#rest.for(Math.min(lookMs, heartbeatAt - clock.elapsed()), clock);
    }
  }

  /** The runner has left: others may take over, and one that left events unsaved has to poll. */
  async release(): Promise<void> {
    const { store, clock } = this.#deps;
    const { key, runner } = this.#ask;
    await this.#untilSaved();
    await store.write(async (session) => {
      const held = await holdProjection(session, key);
      const generation = this.#mine(held);
      if (!held || !generation) return;
      const isUnsaved = (await firstUnsaved(session, generation)) !== undefined;
      generation.stream_id = null;
      generation.lease_until = clock.now();
      await updateGeneration(session, generation);
      if (!isUnsaved || runner.isNamed || held.mode !== "managed") return;
      held.stale_holder = runner.holder;
      await updateProjection(session, held);
    });
  }

  #message(event?: PartitionedEvent): RunnerMessage {
    const { fence = 0, generation = 0 } = this.#own ?? {};
    return { event, fence, generation, building: this.#building };
  }

  #mine(held: HeldProjection | undefined): GenerationRow | undefined {
    return held?.generations.find((one) => one.stream_id === this.#id);
  }

  #acquire(isFirst: boolean): Promise<GenerationRow | undefined> {
    const { store, clock } = this.#deps;
    const { key, runner, permitted } = this.#ask;
    return store.write(async (session) => {
      const now = clock.now();
      const held = await holdProjection(session, key);
      if (!held) throw unknownProjection(key.name);
      this.#definition ??= definitionText(held);
      const isOther = definitionText(held) !== this.#definition;
      if (isOther || (permitted !== undefined && permitted !== held.events)) throw redefined(key);
      const generation = generationOf(held, runner);
      this.#building = buildingOf(held);
      if (isFirst) await requireFreshMemory(session, held, generation, runner, now);
      if (standingOf(generation, runner, { streamId: this.#id, now }) === "another") return undefined;
      takeLease(generation, runner, { streamId: this.#id, now, hasWork: false });
      await clearPending(session, generation);
      generation.delivered = generation.cursor_position;
      await updateGeneration(session, generation);
      return generation;
    });
  }

  /** The next events; undefined once the lease is lost. */
  async #next(): Promise<readonly PartitionedEvent[] | undefined> {
    const { clock, deliveries, onDelivered } = this.#deps;
    const own = { streamId: this.#id, definition: this.#definition ?? "" };
    // A few events at a time would cost a commit each.
    const isFull = projectionWindowMax - this.#unsaved.length < this.#ask.limit;
    const delivered = await deliveries.next(this.#ask, own, isFull ? 0 : this.#ask.limit);
    if (!delivered) return undefined;
    const { held, generation, events, advanced } = delivered;
    const { cursor_position: cursor } = generation;
    this.#building = buildingOf(held);
    if (advanced) onDelivered(delivered);
    if (cursor !== this.#cursor || events.length > 0) this.#movedAt = clock.elapsed();
    this.#cursor = cursor;
    for (const { position } of events) this.#unsaved.push(position);
    const first = this.#unsaved.findIndex((position) => position > cursor);
    this.#unsaved = first < 0 ? [] : this.#unsaved.slice(first);
    this.#hasRoomAgain = isFull && projectionWindowMax - this.#unsaved.length >= this.#ask.limit;
    if (events.length === 0 && isAging(generation, clock.now())) await this.#renew();
    return events;
  }

  async #renew(): Promise<void> {
    const { store, clock } = this.#deps;
    await store.write(async (session) => {
      const generation = this.#mine(await holdProjection(session, this.#ask.key));
      if (!generation) return;
      takeLease(generation, this.#ask.runner, { streamId: this.#id, now: clock.now(), hasWork: false });
      await updateGeneration(session, generation);
    });
  }

  /** Saves of what was delivered last are on their way. */
  async #untilSaved(): Promise<void> {
    const { clock, deliveries } = this.#deps;
    const until = clock.elapsed() + projectionDrainMs;
    while (clock.elapsed() < until) {
      const mine = this.#mine(await deliveries.read(this.#ask.key).catch(() => undefined));
      if (!mine || mine.cursor_position >= mine.delivered) return;
      await clock.sleep(projectionDrainMs / 10);
    }
  }
}

export type ProjectionStreams = ReturnType<typeof openProjectionStreams>;

export interface OpenStream {
  /** To be read to its end, or returned from. */
  messages(): AsyncIterable<RunnerMessage>;
}

export interface RunnerStreamsDeps extends Omit<RunnerStreamDeps, "isDraining"> {
  ids: Ids;
  /** Wakes on events that the projection may want, and on changes of it. */
  listen: (key: ProjectionKey, rest: Rest) => Promise<() => void>;
}

export function openProjectionStreams(deps: RunnerStreamsDeps) {
  const { clock, ids, listen } = deps;
  const holdings = openHolderLimit({ most: projectionStreamsMax, what: "projection streams" });
  const open = new Set<{ rest: Rest; over: Promise<void> }>();
  let isDraining = false;
  const streamDeps = { ...deps, isDraining: () => isDraining };

  async function* read(stream: RunnerStream, rest: Rest, signal: AbortSignal) {
    const over = Promise.withResolvers<void>();
    const entry = { rest, over: over.promise };
    open.add(entry);
    const onAbort = () => rest.wake();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      yield* stream.messages();
    } finally {
      signal.removeEventListener("abort", onAbort);
      open.delete(entry);
      await stream.release().finally(over.resolve);
    }
  }

  return {
    /**
     * Resolves when the runner may be streamed to. Throws `unimplemented` where it has to poll: its memory
     * may not be what is stored, and a poll brings the state along.
     */
    async admit(ask: StreamAsk): Promise<OpenStream> {
      if (isDraining) throw tryAgain("unavailable", "the server is going away");
      if (ask.isPart) throw mustPoll(ask.key);
      const giveBack = holdings.acquire(ask.callerId);
      const rest = new Rest();
      let unlisten: () => void = () => {};
      const close = () => {
        unlisten();
        giveBack();
      };
      try {
        unlisten = await listen(ask.key, rest);
        const stream = new RunnerStream(streamDeps, ask, { id: ids.next("stream"), rest });
        await stream.open();
        return {
          async *messages() {
            try {
              yield* read(stream, rest, ask.signal);
            } finally {
              close();
            }
          },
        };
      } catch (error) {
        close();
        throw error;
      }
    },

    /** Ends every stream once what it delivered is saved, or a moment later. */
    async drain() {
      isDraining = true;
      const all = [...open];
      for (const { rest } of all) rest.wake();
      await Promise.race([Promise.all(all.map(({ over }) => over)), clock.sleep(4 * projectionDrainMs)]);
    },

    size: () => open.size,
  };
}
