import { setting } from "../kit/setting.ts";
import { boolean, integer } from "../kit/setting-kinds.ts";

/** What leaves over the message bus for good, and what happens to what it does not take. */
export const outboxSettings = {
  natsMirror: setting({
    env: "SVC_NATS_MIRROR",
    parse: boolean,
    fallback: false,
    about:
      "Mirror every event into the JetStream stream svc_mirror, subjects svc.mirror.{environment}.…, for readers outside.",
  }),
  busPayloadMax: setting({
    env: "SVC_BUS_PAYLOAD_MAX",
    parse: integer(1_024, 64 * 1024 * 1024, "bytes"),
    fallback: 1024 * 1024,
    about: "Largest message that the outbox hands to the message bus.",
  }),
  outboxAttempts: setting({
    env: "SVC_OUTBOX_ATTEMPTS",
    parse: integer(1, 1_000, "attempts"),
    fallback: 10,
    about: "How often a message that the bus refuses is tried before it is a dead letter.",
  }),
};
