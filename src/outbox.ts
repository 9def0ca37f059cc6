import type { Bus } from "./bus/bus.ts";
import type { DutyLoop } from "./cluster/duties.ts";
import type { ControlMessage } from "./domain/engine/steering/controls.ts";
import { openPast } from "./domain/log/log/past.ts";
import type { Frames } from "./domain/realtime/pubsub/frames.ts";
import { outboxFrames } from "./domain/realtime/pubsub/lifecycle-frames.ts";
import type { IntegrityCheck } from "./domain/record/integrity/service.ts";
import { outboxChecks } from "./domain/record/outbox/invariants.ts";
import { openMirror } from "./domain/record/outbox/mirror.ts";
import { outboxOperations } from "./domain/record/outbox/operations.ts";
import { openOutbox } from "./domain/record/outbox/service.ts";
import type { FloorGuard } from "./domain/record/retention/service.ts";
import type { Clock } from "./kit/clock.ts";
import type { Ids } from "./kit/ids.ts";
import { outboxSendMs } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { Operation } from "./kit/operation.ts";
import type { Watch } from "./kit/watch.ts";
import type { Config } from "./settings.ts";
import type { Session, Store } from "./store/store.ts";

export interface OutboxPart {
  operations: readonly Operation[];
  duties: readonly DutyLoop[];
  checks: readonly IntegrityCheck[];
  floorGuards: readonly FloorGuard[];
  /** Promises to tell whoever holds a run; what it answers is called after the commit. */
  control(session: Session, message: ControlMessage): Promise<() => void>;
  settled(): Promise<void>;
}

export interface OutboxPartDeps {
  config: Pick<Config, "natsMirror" | "busPayloadMax" | "outboxAttempts">;
  store: Store;
  bus: Bus;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  frames: Frames;
  wakeLoop: (name: string, inMs: number) => void;
}

/** Runs only where there is a bus to mirror to. */
export const mirrorLoop = {
  duty: "outbox",
  name: "outbox.mirror",
  about: "Hands new events to the mirror on the message bus, a slice at a time; only while the mirror is on.",
  everyMs: 200,
} as const;

const controlTopic = "runs.control";

/** What must be told to the world put together: the outbox, and the mirror of every log for users of the bus outside. */
export function openOutboxPart(deps: OutboxPartDeps): OutboxPart {
  const { config, store, bus, clock, ids, log, frames } = deps;
  const { metrics } = deps.watch;
  const payloadBytesMax = config.busPayloadMax;
  const past = openPast(store);
  const outbox = openOutbox({
    ...{ store, clock, ids, log, metrics, payloadBytesMax },
    attemptsMax: config.outboxAttempts,
    announce: outboxFrames(frames),
    relayIn: (ms) => deps.wakeLoop("outbox.relay", ms),
    senders: {
      control: (entry) => bus.send(controlTopic, entry.payload, outboxSendMs),
      async mirror(entry) {
        if (!mirror) throw new Error("the mirror is switched off");
        await mirror.send(entry);
      },
    },
  });
  const target = config.natsMirror ? bus.mirror : undefined;
  const mirror =
    target &&
    openMirror({
      ...{ store, clock, log, metrics, past, target, outbox, payloadBytesMax },
      connected: bus.connected,
    });
  return {
    operations: outboxOperations(outbox),
    duties: [
      {
        duty: "outbox",
        name: "outbox.relay",
        about:
          "Sends the outbox entries that are due, and counts the attempts of what the bus refuses; woken early for new entries.",
        everyMs: 1_000,
        tick: outbox.relayOnce,
      },
      ...(mirror ? [{ ...mirrorLoop, tick: mirror.mirrorOnce }] : []),
      {
        duty: "retention",
        name: "outbox.forget",
        about: "Deletes dead letters of the outbox after their retention.",
        everyMs: 10 * 60_000,
        tick: outbox.forgetOnce,
      },
    ],
    checks: outboxChecks({ store, clock, mirrored: mirror && past }),
    floorGuards: mirror ? [mirror.leastUnmirrored] : [],
    control: (session, message) =>
      outbox.enqueue(session, {
        environmentId: message.environmentId,
        eventId: message.messageId,
        topic: controlTopic,
        kind: "control",
        payload: JSON.stringify(message),
        metadata: { message_id: message.messageId, run_id: message.runId },
      }),
    settled: outbox.settled,
  };
}
