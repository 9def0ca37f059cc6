import { setting } from "../kit/setting.ts";
import { integer } from "../kit/setting-kinds.ts";

/** How long events, messages and runs are kept. */
export const retentionSettings = {
  eventRetentionDays: setting({
    env: "SVC_EVENT_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 0,
    about: "How long events are kept; 0 keeps them for ever.",
  }),
  topicRetentionHours: setting({
    env: "SVC_TOPIC_RETENTION_HOURS",
    parse: integer(0, 876_000, "hours"),
    fallback: 72,
    about: "How long messages of developer topics are kept; 0 keeps them for ever.",
  }),
  runRetentionDays: setting({
    env: "SVC_RUN_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 90,
    about: "How long a run is kept behind its end, where its function does not say; 0 keeps it for ever.",
  }),
};
