import { boolean, integer, setting } from "../kit/setting.ts";

/** Which headers of a proxy are trusted, and which requests are refused. */
export const requestSettings = {
  trustProxy: setting({
    env: "SVC_TRUST_PROXY",
    parse: boolean,
    fallback: false,
    about:
      "Believe the last entries of X-Forwarded-For and X-Forwarded-Proto: a load balancer of yours writes them.",
  }),
  oidcAllowHttp: setting({
    env: "SVC_OIDC_ALLOW_HTTP",
    parse: boolean,
    fallback: false,
    about:
      "Sign in by OpenID providers over plain HTTP; without it only those of this machine may do without TLS.",
  }),
  strictEnvironment: setting({
    env: "SVC_STRICT_ENVIRONMENT",
    parse: boolean,
    fallback: false,
    about: "Refuse an unknown environment name instead of falling back to env_default.",
  }),
  strictInput: setting({
    env: "SVC_STRICT_INPUT",
    parse: boolean,
    fallback: false,
    about:
      "Refuse fields that the server does not know in RPC and worker requests, instead of passing them over: for finding misspelt ones.",
  }),
};

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
