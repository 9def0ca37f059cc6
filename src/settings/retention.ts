import { setting } from "../kit/setting.ts";
import { integer } from "../kit/setting-kinds.ts";

/** How long events, messages and runs are kept. */
export const retentionSettings = {
  eventRetentionDays: setting({
    env: "SVC_EVENT_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 0,
    about: "Events are deleted after this many days; 0 means never.",
  }),
  topicRetentionHours: setting({
    env: "SVC_TOPIC_RETENTION_HOURS",
    parse: integer(0, 876_000, "hours"),
    fallback: 72,
    about: "Messages of developer topics are deleted after this many hours; 0 means never.",
  }),
  runRetentionDays: setting({
    env: "SVC_RUN_RETENTION_DAYS",
    parse: integer(0, 36_500, "days"),
    fallback: 90,
    about:
      "A run is deleted this many days after its end, unless its function sets its own retention; 0 means never.",
  }),
};
