import type { Clock } from "../../../kit/clock.ts";
import { controlMs } from "../../../kit/limits.ts";

/** A message to the node and the worker that hold a run. It may be lost, and may arrive twice. */
export interface ControlMessage {
  /** Stable: `cancel-{run}`, `resume-{run}`. */
  messageId: string;
  kind: "cancel" | "resume";
  environmentId: string;
  runId: string;
  /** The worker that held the run under `executionSeq`; null when none did. */
  workerId: string | null;
  executionSeq: number;
  /** The reason that the caller gave. */
  reason: string;
}

export interface Controls {
  /** Resolves once the bus has taken the message; rejects after `limits.controlMs`. */
  publish(message: ControlMessage): Promise<void>;
  /** Calls the listeners of this node only. */
  notifyHere(message: ControlMessage): void;
  /** The listener is called with every message, also with those that this node sent. */
  onControl(listener: (message: ControlMessage) => void): void;
}

export interface ControlsDeps {
  clock: Pick<Clock, "after">;
  /** Hands a message to the other nodes. */
  send: (payload: string) => void | Promise<void>;
}

export interface OpenControls extends Controls {
  /** Takes a message of another node. */
  receive(payload: string): void;
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
        await Promise.race([Promise.resolve(send(JSON.stringify(message))), late]);
      } finally {
        cancel();
      }
      notify(message);
    },
    notifyHere: notify,
    onControl: (listener) => void listeners.push(listener),
    receive: (payload) => notify(JSON.parse(payload) as ControlMessage),
  };
}
