import type { Clock } from "../../../kit/clock.ts";
import { controlMs } from "../../../kit/limits.ts";

/** What whoever holds a run, on whichever node, should hear of; best effort, and safe to hear twice. */
export interface ControlMessage {
  /** Stable: `cancel-{run}`, `resume-{run}`. */
  messageId: string;
  kind: "cancel" | "resume";
  environmentId: string;
  runId: string;
  /** The worker that held it, and by which fence; null when none did. */
  workerId: string | null;
  executionSeq: number;
  /** Why, in the words of who did it. */
  reason: string;
}

export interface Controls {
  /** Resolves once it was handed on; rejects when that took longer than `limits.controlMs`. */
  publish(message: ControlMessage): Promise<void>;
  /** Tells those who hold runs through this node. */
  notifyHere(message: ControlMessage): void;
  /** Told of every message, this node's own too. */
  onControl(listener: (message: ControlMessage) => void): void;
}

export interface ControlsDeps {
  clock: Pick<Clock, "after">;
  /** Hands a message to the other nodes. */
  send: (payload: string) => void | Promise<void>;
}

export interface OpenControls extends Controls {
  /** A message of another node. */
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
        cancel = clock.after(controlMs, () => reject(new Error("telling took too long")));
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
