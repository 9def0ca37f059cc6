import { Icon, type IconName } from "./icons.tsx";

export type Tone = "good" | "bad" | "busy" | "idle" | "warn" | "off";

interface StatusLook {
  word: string;
  tone: Tone;
  icon: IconName;
}

/** How each status is shown: by a word, a shape and a colour, never by the colour alone. */
const looks: Record<string, StatusLook> = {
  completed: { word: "Completed", tone: "good", icon: "check" },
  failed: { word: "Failed", tone: "bad", icon: "cross" },
  cancelled: { word: "Cancelled", tone: "off", icon: "dash" },
  running: { word: "Running", tone: "busy", icon: "play" },
  waiting_for_capacity: { word: "Queued", tone: "idle", icon: "clock" },
  waiting: { word: "Retrying", tone: "warn", icon: "refresh" },
  paused: { word: "Paused", tone: "warn", icon: "pause" },
  sleeping: { word: "Sleeping", tone: "idle", icon: "moon" },
  waits: { word: "Waiting", tone: "idle", icon: "clock" },
  timed_out: { word: "Timed out", tone: "bad", icon: "clock" },
  compensating: { word: "Undoing", tone: "warn", icon: "undo" },
  active: { word: "Active", tone: "good", icon: "check" },
  archived: { word: "Archived", tone: "off", icon: "dash" },
  pending: { word: "Pending", tone: "idle", icon: "clock" },
  rebuilding: { word: "Rebuilding", tone: "busy", icon: "refresh" },
  error: { word: "Error", tone: "bad", icon: "alert" },
  stopping: { word: "Stopping", tone: "warn", icon: "stop" },
  stopped: { word: "Stopped", tone: "off", icon: "stop" },
  done: { word: "Done", tone: "good", icon: "check" },
  over: { word: "Over before", tone: "off", icon: "dash" },
  refused: { word: "Refused", tone: "bad", icon: "cross" },
  undone: { word: "Not begun", tone: "off", icon: "dash" },
};

const pauses: Record<string, StatusLook> = {
  sleep: { word: "Sleeping", tone: "idle", icon: "moon" },
  wait_event: { word: "Waiting for event", tone: "idle", icon: "clock" },
  invoke: { word: "Waiting for child", tone: "idle", icon: "child" },
  injection: { word: "Held", tone: "warn", icon: "pause" },
};

export const lookOf = (status: string, pauseReason?: string, phase?: string): StatusLook =>
  (phase ? looks[phase] : undefined) ??
  (status === "paused" && pauseReason ? pauses[pauseReason] : undefined) ??
  looks[status] ?? { word: status, tone: "off", icon: "dash" };

export function Status(props: { of: string; pauseReason?: string | undefined; phase?: string | undefined }) {
  const { word, tone, icon } = lookOf(props.of, props.pauseReason, props.phase);
  return (
    <span class={`status ${tone}`}>
      <Icon name={icon} size={12} />
      {word}
    </span>
  );
}
