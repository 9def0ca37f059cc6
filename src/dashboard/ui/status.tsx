import { runWord } from "../../sdk/wire/pause-words.ts";
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
  parked: { word: "Paused or waiting", tone: "idle", icon: "pause" },
  sleeping: { word: "Sleeping", tone: "idle", icon: "moon" },
  waiting_for_event: { word: "Waiting", tone: "idle", icon: "clock" },
  waiting_for_child: { word: "Waiting for child", tone: "idle", icon: "child" },
  held: { word: "Held", tone: "warn", icon: "pause" },
  deployment_gone: { word: "Deployment gone", tone: "warn", icon: "pause" },
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
  gathering: { word: "Gathering", tone: "idle", icon: "clock" },
  ready: { word: "Ready", tone: "good", icon: "check" },
  done: { word: "Done", tone: "good", icon: "check" },
  over: { word: "Over before", tone: "off", icon: "dash" },
  refused: { word: "Refused", tone: "bad", icon: "cross" },
  up: { word: "Up", tone: "good", icon: "check" },
  draining: { word: "Draining", tone: "warn", icon: "stop" },
  silent: { word: "Silent", tone: "bad", icon: "cross" },
  healthy: { word: "Healthy", tone: "good", icon: "check" },
  degraded: { word: "Degraded", tone: "bad", icon: "alert" },
  moving: { word: "Moving", tone: "good", icon: "check" },
  late: { word: "Late", tone: "warn", icon: "clock" },
  failing: { word: "Failing", tone: "bad", icon: "cross" },
  balanced: { word: "Balanced", tone: "good", icon: "check" },
  unbalanced: { word: "Not balanced", tone: "bad", icon: "alert" },
  open: { word: "Open", tone: "bad", icon: "cross" },
  half_open: { word: "Half open", tone: "warn", icon: "alert" },
  closed: { word: "Closed", tone: "good", icon: "check" },
  expired: { word: "Expired", tone: "off", icon: "clock" },
  inactive: { word: "Inactive", tone: "off", icon: "dash" },
  allowed: { word: "Allowed", tone: "good", icon: "check" },
  denied: { word: "Denied", tone: "bad", icon: "cross" },
  not_denied: { word: "Not denied", tone: "good", icon: "check" },
  whole: { word: "Whole", tone: "good", icon: "check" },
  broken: { word: "Broken", tone: "bad", icon: "alert" },
  deleted: { word: "Deleted", tone: "off", icon: "dash" },
  disabled: { word: "Disabled", tone: "bad", icon: "stop" },
  accepted: { word: "Accepted", tone: "good", icon: "check" },
  rejected: { word: "Rejected", tone: "bad", icon: "cross" },
  undone: { word: "Not begun", tone: "off", icon: "dash" },
  resolved: { word: "Resolved", tone: "good", icon: "check" },
};

export const lookOf = (status: string, pauseReason?: string, phase?: string): StatusLook =>
  (phase ? looks[phase] : undefined) ??
  looks[runWord(status, pauseReason)] ?? { word: status, tone: "off", icon: "dash" };

/** Of a run whose reason to be paused is not told: nobody may hold it. */
export const RunStatus = ({ of }: { of: string }) => <Status of={of === "paused" ? "parked" : of} />;

export function Status(props: { of: string; pauseReason?: string | undefined; phase?: string | undefined }) {
  const { word, tone, icon } = lookOf(props.of, props.pauseReason, props.phase);
  return (
    <span class={`status ${tone}`}>
      <Icon name={icon} size={12} />
      {word}
    </span>
  );
}
