import type { RefusedEvent } from "../domain/engine/emit/delayed-due.ts";
import { type ControlMessage, controlChannel, controlSubject } from "../domain/engine/steering/controls.ts";
import { openPast } from "../domain/log/core/feed-reader.ts";
import { outboxFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import { outboxSendMs } from "../domain/record/outbox/limits.ts";
import { mirrorAgain, openMirror } from "../domain/record/outbox/mirror.ts";
import { outboxOperations } from "../domain/record/outbox/operations.ts";
import { openOutbox, outboxChecks } from "../domain/record/outbox/service.ts";
import { Waker } from "../kit/loop.ts";
import type { Session } from "../store/store.ts";
import type { Host, PartShape } from "./part.ts";

export type OutboxPart = ReturnType<typeof openOutboxPart>;

/** Runs only where there is a bus to mirror to. */
export const mirrorLoop = {
  duty: "outbox",
  name: "outbox.mirror",
  about: "Hands new events to the mirror on the message bus, a slice at a time; only while the mirror is on.",
  everyMs: 200,
} as const;

/** The outbox, and the mirror of every event log for readers outside. */
export function openOutboxPart(host: Host) {
  const { config, store, bus, clock, ids, log, frames } = host;
  const relay = new Waker();
  const { metrics } = host.watch;
  const payloadBytesMax = config.busPayloadMax;
  const past = openPast(store);
  const control = controlChannel(bus);
  const target = config.natsMirror ? bus.mirror : undefined;
  const outbox = openOutbox({
    ...{ store, clock, ids, log, metrics, payloadBytesMax },
    attemptsMax: config.outboxAttempts,
    announce: outboxFrames(frames),
    relayIn: relay.wakeIn,
    senders: {
      control: (entry) => control.send(entry.payload, outboxSendMs),
      async mirror(entry) {
        if (!target) throw new Error("the mirror is switched off");
        await mirrorAgain(target, entry);
      },
    },
  });
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
        waker: relay,
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
    /**
     * Enqueues a message for the worker that holds a run, in the caller's transaction; the answer is called
     * after its commit.
     */
    enqueueControl: (session: Session, message: ControlMessage) =>
      outbox.enqueue(session, {
        environmentId: message.environmentId,
        eventId: message.messageId,
        topic: controlSubject,
        kind: "control",
        payload: control.encode(message),
        metadata: { message_id: message.messageId, run_id: message.runId },
      }),
    /** Writes delayed events that were refused into the dead letters; call the answer after the commit. */
    buryDelayed: (session: Session, refused: readonly RefusedEvent[]) =>
      outbox.bury(
        session,
        refused.map(({ environmentId, id, name, data, rest, error }) => ({
          error,
          draft: {
            ...{ environmentId, eventId: id, topic: `events:${name}`, kind: "delayed" },
            ...{ payload: data, metadata: rest },
          },
        })),
      ),
    ...{ bury: outbox.bury, redoneBy: outbox.redoneBy },
    settled: outbox.settled,
  } satisfies PartShape;
}
