import { backoff } from "../../../kit/backoff.ts";
import { breather } from "../../../kit/breather.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import type { Basics } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Past } from "../../log/core/feed-reader.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import { type EndpointChange, placeOf } from "./endpoints.ts";
import * as letters from "./letter-rows.ts";
import {
  disabledAfterMs,
  endpointErrorCharsMax,
  eventsReadMax,
  namesReadMax,
  retryPauseMsMax,
  savedEveryDeliveries,
  savedEveryMs,
  senderLeaseBesideMs,
  senderTurnMs,
} from "./limits.ts";
import type { DeliveryMeters } from "./meters.ts";
import * as rows from "./rows.ts";
import type { CallOutcome } from "./rules.ts";
import { isNamed, type SendEvent, type Spared, wantedBy } from "./sender.ts";

export interface TurnDeps extends Basics<"store" | "clock"> {
  ids: Pick<Ids, "chance">;
  keyring: Pick<Keyring, "unseal">;
  past: Pick<Past, "at" | "head">;
  send: SendEvent;
  meters: DeliveryMeters;
  /** The first pause between two tries, and how long an event is tried. */
  retryMs: number;
  triedMsMax: number;
  timeoutMs: number;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: EndpointChange) => void;
}

/** For one call and its save: a node that dies holds an endpoint up for no longer. */
export const leaseMsOf = ({ timeoutMs }: Pick<TurnDeps, "timeoutMs">): number =>
  timeoutMs + senderLeaseBesideMs;

/** The endpoint is another sender's now, was changed or is gone. */
class LostEndpoint extends Error {}

const breakerLookMs = 1_000;

/** What a turn found to be gone from the log. */
interface Expired {
  first: number;
  last: number;
  count: number;
  isSaved: boolean;
}

/** Positions have no gaps: what is not there after `after` and before the last one has expired. */
function gapsIn(positions: readonly number[], after: number): { from: number; to: number }[] {
  return positions.flatMap((position, place) => {
    const from = (positions[place - 1] ?? after) + 1;
    return from < position ? [{ from, to: position - 1 }] : [];
  });
}

/**
 * One turn of the node that holds an endpoint: its events in the order of the log, each only when the one
 * before was taken or became a dead letter. How far it came is saved under its fence.
 */
export class SenderTurn {
  readonly #deps: TurnDeps;
  readonly #row: rows.EndpointRow;
  readonly #secrets: readonly string[];
  readonly #stopped: AbortSignal;
  readonly #until: number;
  #progress: rows.EndpointProgress;
  #unsaved = 0;
  #savedAt: number;
  #leaseUntil: number;
  #expired: Expired | undefined;
  readonly #readAhead = new ReadAheadSize(1);

  private constructor(
    deps: TurnDeps,
    row: rows.EndpointRow,
    { secrets, stopped }: { secrets: readonly string[]; stopped: AbortSignal },
  ) {
    this.#deps = deps;
    this.#row = row;
    this.#secrets = secrets;
    this.#stopped = stopped;
    this.#progress = row;
    this.#savedAt = deps.clock.elapsed();
    this.#until = this.#savedAt + senderTurnMs;
    this.#leaseUntil = row.lease_until;
  }

  /** Sends what is due, and gives the endpoint back. Answers when it has more to send, if that is known. */
  static async run(
    deps: TurnDeps,
    row: rows.EndpointRow,
    stopped: AbortSignal,
  ): Promise<Instant | undefined> {
    const { keyring, clock } = deps;
    const secrets = [await keyring.unseal(placeOf(row), row.sealed)];
    if (row.prev_sealed !== null && (row.prev_expires_at ?? 0) > clock.now())
      secrets.push(await keyring.unseal(placeOf(row), row.prev_sealed));
    const turn = new SenderTurn(deps, row, { secrets, stopped });
    try {
      await turn.#letters();
      if (row.due_at <= clock.now()) await turn.#log();
      const left = await turn.#giveBack();
      const isChanged = left?.updated_at !== row.updated_at;
      return turn.#isOver || isChanged ? clock.now() : turn.#progress.due_at || undefined;
    } catch (error) {
      if (!(error instanceof LostEndpoint)) throw error;
      return clock.now();
    }
  }

  get #isOver(): boolean {
    return this.#stopped.aborted || this.#deps.clock.elapsed() >= this.#until;
  }

  /** Throws `LostEndpoint` when another turn has the endpoint, or its definition is no longer this one. */
  async #save(): Promise<void> {
    const { clock } = this.#deps;
    const leaseUntil = clock.now() + leaseMsOf(this.#deps);
    const saved = await this.#write({ leaseUntil });
    this.#unsaved = 0;
    this.#savedAt = clock.elapsed();
    this.#leaseUntil = leaseUntil;
    this.#tell();
    if (saved?.status === "active" && saved.updated_at === this.#row.updated_at) return;
    if (saved) await this.#giveBack();
    throw new LostEndpoint();
  }

  /** The end of its turn is kept: of those with something to send, who waited longest is next. */
  async #giveBack() {
    const since = this.#deps.clock.now() - 1;
    const left = await this.#write({ since });
    this.#tell();
    return left;
  }

  /** How far it came and the dead letters are one transaction: an event is never in neither place. */
  async #write(
    how: Parameters<typeof rows.saveProgress>[3],
    dead?: Pick<letters.LetterRow, "event_id" | "event_name" | "position" | "attempts" | "last_error">,
  ) {
    const { store, clock, meters } = this.#deps;
    const lost = this.#expired?.isSaved === false ? [letterOf(this.#expired)] : [];
    const fallen = [...lost, ...(dead ? [dead] : [])];
    const { environment_id, id: endpoint_id } = this.#row;
    const saved = await store.write(async (session) => {
      const held = await rows.saveProgress(session, this.#row, this.#progress, how);
      const rest = { environment_id, endpoint_id, dead_at: clock.now(), due_at: null };
      if (held) for (const one of fallen) await letters.insertLetter(session, { ...one, ...rest });
      return held;
    });
    if (!saved) return saved;
    if (this.#expired) this.#expired.isSaved = true;
    meters.calls("dead_lettered").add(fallen.length);
    return saved;
  }

  #tell(): void {
    const { environment_id: environmentId, id } = this.#row;
    this.#deps.announce({ environmentId, id, change: "moved" });
  }

  /** Whether the lease outlasts one more call; without this a slow node would send beside the next holder. */
  #holds(): boolean {
    const { clock, timeoutMs } = this.#deps;
    return this.#leaseUntil - clock.now() > timeoutMs + savedEveryMs;
  }

  async #saveIfDue(): Promise<void> {
    const isDue =
      this.#expired?.isSaved === false ||
      this.#unsaved >= savedEveryDeliveries ||
      this.#deps.clock.elapsed() - this.#savedAt >= savedEveryMs ||
      !this.#holds();
    if (isDue) await this.#save();
  }

  /** Dead letters that a caller wants sent again, before what the log has next. */
  async #letters(): Promise<void> {
    const { store, past, send, meters } = this.#deps;
    const { environment_id, id } = this.#row;
    const due = await letters.dueLetters(store, { environment_id, endpoint_id: id }, savedEveryDeliveries);
    for (const letter of due) {
      if (this.#isOver) return;
      await this.#saveIfDue();
      const [event] = await past.at(environment_id, [letter.position]);
      const outcome: CallOutcome | Spared = event
        ? await send.send(this.#row, event, this.#secrets)
        : { kind: "failed", error: "the event has expired", retryAfterMs: undefined };
      if (outcome.kind === "spared") return;
      meters.calls(outcome.kind === "delivered" ? "delivered" : "failed").add();
      await store.write((session) =>
        outcome.kind === "delivered"
          ? letters.deleteLetter(session, letter)
          : letters.noteLetterFailure(session, letter, errorOf(outcome)),
      );
    }
  }

  async #log(): Promise<void> {
    const { store, past } = this.#deps;
    const { environment_id } = this.#row;
    const wanted = wantedBy(this.#row);
    const breathe = breather(this.#deps.clock, environment_id);
    while (!this.#isOver) {
      const found = await rows.namesAfter(store, environment_id, this.#progress.position, namesReadMax);
      if (found.length === 0) return;
      // Retention keeps events of entities. The gaps between them mean nothing to readers of only these.
      const positions = wanted.pattern.namespace === "events" ? found.map(({ position }) => position) : [];
      const gaps = gapsIn(positions, this.#progress.position);
      const own = found.filter((event) => isNamed(wanted, event)).map(({ position }) => position);
      for (let from = 0, most = 1; from < own.length; from += most) {
        most = Math.min(this.#readAhead.limit, eventsReadMax);
        const events = await past.at(environment_id, own.slice(from, from + most));
        this.#readAhead.note(
          events.length,
          events.reduce((sum, { data }) => sum + data.length, 0),
        );
        for (const event of events) {
          if (wanted.filter) await breathe();
          if (this.#isOver) return;
          this.#passGaps(gaps, event.position);
          if (this.#deps.send.passes(wanted, event) && !(await this.#deliver(event))) return;
          this.#pass(event.position);
        }
      }
      this.#passGaps(gaps, found.at(-1)!.position);
      this.#pass(found.at(-1)!.position);
      await this.#saveIfDue();
    }
  }

  /** Those before the position, of which the whole turn makes one dead letter. */
  #passGaps(gaps: { from: number; to: number }[], before: number): void {
    for (let gap = gaps[0]; gap && gap.to < before; gap = gaps[0]) {
      gaps.shift();
      const { first, count } = this.#expired ?? { first: gap.from, count: 0 };
      this.#expired = { first, last: gap.to, count: count + gap.to - gap.from + 1, isSaved: false };
      this.#pass(gap.to);
    }
  }

  #pass(position: number): void {
    if (position <= this.#progress.position) return;
    this.#progress = {
      ...this.#progress,
      ...{ position, attempts: 0, failing_event_id: null, tried_since: null, due_at: 0 },
    };
  }

  /** False when the event stays the next one. */
  async #deliver(event: LoggedEvent): Promise<boolean> {
    const { clock, send, meters } = this.#deps;
    await this.#saveIfDue();
    const outcome = await send.send(this.#row, event, this.#secrets);
    const now = clock.now();
    switch (outcome.kind) {
      case "delivered":
        meters.calls("delivered").add();
        this.#progress = {
          ...this.#progress,
          ...{ last_delivered_at: now, failing_since: null, last_error: null },
        };
        this.#unsaved++;
        return true;
      case "spared":
        this.#progress = { ...this.#progress, due_at: now + breakerLookMs };
        return false;
      case "gone":
        meters.calls("failed").add();
        await this.#disable("the endpoint answered 410: it is gone");
        return false;
      case "failed":
        meters.calls("failed").add();
        return this.#failed(event, outcome);
    }
  }

  /** Plans the next try; after the last one the event becomes a dead letter, and the endpoint continues. */
  async #failed(event: LoggedEvent, outcome: CallOutcome & { kind: "failed" }): Promise<boolean> {
    const { clock, ids, retryMs, triedMsMax } = this.#deps;
    const now = clock.now();
    const attempts = this.#progress.attempts + 1;
    const tried_since = this.#progress.tried_since ?? now;
    const failing_since = this.#progress.failing_since ?? now;
    const pauseMs = backoff({ minMs: retryMs, maxMs: retryPauseMsMax, chance: ids.chance })(attempts);
    const asked = Math.min(retryPauseMsMax, outcome.retryAfterMs ?? 0);
    this.#progress = {
      ...this.#progress,
      ...{ attempts, tried_since, failing_since, failing_event_id: event.id, last_error: errorOf(outcome) },
      due_at: now + Math.max(Math.round(pauseMs), asked),
    };
    if (now - failing_since >= disabledAfterMs) {
      await this.#disable(`no delivery in five days: ${errorOf(outcome)}`);
      return false;
    }
    if (now - tried_since < triedMsMax) return false;
    await this.#bury(event, errorOf(outcome));
    return true;
  }

  async #disable(reason: string): Promise<void> {
    const { store, clock } = this.#deps;
    await store.write((session) => rows.disableEndpoint(session, this.#row, { reason, at: clock.now() }));
  }

  async #bury({ id, name, position }: LoggedEvent, error: string): Promise<void> {
    const { attempts } = this.#progress;
    const leaseUntil = this.#deps.clock.now() + leaseMsOf(this.#deps);
    this.#pass(position);
    const dead = { event_id: id, event_name: name, position, attempts, last_error: error };
    if (!(await this.#write({ leaseUntil }, dead))) throw new LostEndpoint();
    this.#leaseUntil = leaseUntil;
  }
}

const letterOf = ({ first, last, count }: Expired) => ({
  event_id: `expired:${first}`,
  event_name: "expired",
  position: first,
  attempts: 0,
  last_error: `${count} events from ${first} to ${last} of the log expired while the endpoint was stopped`,
});

const errorOf = (outcome: CallOutcome): string =>
  (outcome.kind === "failed"
    ? outcome.error
    : outcome.kind === "gone"
      ? "the endpoint answered 410"
      : ""
  ).slice(0, endpointErrorCharsMax);
