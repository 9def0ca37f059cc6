import { type Static, Type } from "@sinclair/typebox";
import type { Bus } from "../../../bus/bus.ts";
import type { Clock } from "../../../kit/clock.ts";

/** Telling a control message takes at most this. */
const controlMs = 2_000;

/** A message to the node and the worker that hold a run. It may be lost, and may arrive twice. */
const ControlMessage = Type.Object({
  /** Stable: `cancel-{run}`, `resume-{run}`. */
  messageId: Type.String(),
  kind: Type.Union([Type.Literal("cancel"), Type.Literal("resume")]),
  environmentId: Type.String(),
  runId: Type.String(),
  /** The worker that held the run under `executionSeq`; null when none did. */
  workerId: Type.Union([Type.String(), Type.Null()]),
  executionSeq: Type.Integer(),
  /** The reason that the caller gave. */
  reason: Type.String(),
});
export type ControlMessage = Static<typeof ControlMessage>;

export const controlSubject = "runs.control";

export const controlChannel = (bus: Pick<Bus, "channel">) => bus.channel(controlSubject, ControlMessage);

export interface Controls {
  /** Resolves once the bus has taken the message; rejects after `controlMs`. */
  publish(message: ControlMessage): Promise<void>;
  /** Calls the listeners of this node only. */
  notifyHere(message: ControlMessage): void;
  /** The listener is called with every message, also with those that this node sent. */
  onControl(listener: (message: ControlMessage) => void): void;
}

export interface ControlsDeps {
  clock: Pick<Clock, "after">;
  /** Hands a message to the other nodes. */
  send: (message: ControlMessage) => void | Promise<void>;
}

export interface OpenControls extends Controls {
  /** Takes a message of another node. */
  receive(message: ControlMessage): void;
}

export function openControls({ clock, send }: ControlsDeps): OpenControls {
  const listeners: ((message: ControlMessage) => void)[] = [];
  const notify = (message: ControlMessage) => {
    for (const listener of listeners) listener(message);
  };
  return {
    async publish(message) {
      let cancel = () => {};
      const late = new Promise<never>((_, reject) => {
        cancel = clock.after(controlMs, () =>
          reject(new Error(`publishing a control message took longer than ${controlMs} ms`)),
        );
      });
      try {
        await Promise.race([Promise.resolve(send(message)), late]);
      } finally {
        cancel();
      }
      notify(message);
    },
    notifyHere: notify,
    onControl: (listener) => void listeners.push(listener),
    receive: notify,
  };
}
