import { setting } from "../kit/setting.ts";
import { integer } from "../kit/setting-kinds.ts";

/** How many requests one key may send. */
export const rateLimitSettings = {
  keyRateLimit: setting({
    env: "SVC_KEY_RATE_LIMIT",
    parse: integer(0, 1_000_000, "requests"),
    fallback: 0,
    about: "Requests a second that one key may send to this node; 0 sets no limit.",
  }),
  keyRateBurst: setting({
    env: "SVC_KEY_RATE_BURST",
    parse: integer(1, 10_000_000, "requests"),
    fallback: undefined,
    otherwise: "twice the limit",
    about: "Requests that a key may send at once, after it was quiet.",
  }),
};
