import { hash } from "node:crypto";
import { Fault } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import type { Sessions } from "../sessions/service.ts";
import type { Throttle } from "../sessions/throttle.ts";
import type { Exchange } from "./exchange.ts";
import { flowMs } from "./limits.ts";
import * as rows from "./rows.ts";

export type Ends = ReturnType<typeof openEnds>;

export interface EndsDeps extends Basics<"store" | "log"> {
  exchange: Pick<Exchange, "loggedOut">;
  throttle: Pick<Throttle, "once" | "onceIn">;
  sessions: Pick<Sessions, "endOfIssuer">;
  /** Called after sessions of the org ended. */
  onEnded: (orgId: string) => void;
}

/** What happens once, and what ends early. */
export function openEnds({ store, log, exchange, throttle, sessions, onEnded }: EndsDeps) {
  const hashOf = (name: string) => hash("sha256", `oidc ${name}`, "hex");
  return {
    /** Whether nothing came by this name within ten minutes, on any node. */
    once: (name: string) => throttle.once(hashOf(name), flowMs),

    /**
     * Ends the sessions that a logout token names; `invalid_argument` for any other token. A token that could
     * not be followed may come again.
     */
    async byProvider(issuerId: string, token: string): Promise<void> {
      const { issuer, tokenId, sid, subject } = await exchange.loggedOut(issuerId, token).catch((error) => {
        if (!(error instanceof Fault) || error.kind !== "unauthenticated") throw error;
        throw new Fault("invalid_argument", error.message, { field: "logout_token" });
      });
      const { orgId, issuer: url } = issuer;
      const subjectId =
        subject === undefined ? undefined : await rows.userOf(store, { orgId, issuer: url, subject });
      const ended = await sessions.endOfIssuer(issuerId, { sid, subjectId }, (session) =>
        throttle.onceIn(session, hashOf(`logout ${issuerId} ${tokenId}`), flowMs),
      );
      if (ended === undefined)
        throw new Fault("invalid_argument", "logout_token: was used before", { field: "logout_token" });
      if (ended > 0) onEnded(orgId);
      log.info("issuer.logged_out", { issuer: issuerId, ended });
    },
  };
}
