import { hash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Sessions } from "../sessions/service.ts";
import type { Throttle } from "../sessions/throttle.ts";
import type { Exchange, Proven } from "./exchange.ts";
import { flowMs } from "./limits.ts";
import * as rows from "./rows.ts";

export type Ends = ReturnType<typeof openEnds>;

export interface EndsDeps extends Basics<"clock" | "log"> {
  exchange: Pick<Exchange, "loggedOut">;
  throttle: Pick<Throttle, "once" | "onceIn" | "latestIn">;
  sessions: Pick<Sessions, "endOfIssuer">;
  /** Called after sessions of the org ended. */
  onEnded: (orgId: string) => void;
}

/** What happens once, and what ends early. */
export function openEnds({ clock, log, exchange, throttle, sessions, onEnded }: EndsDeps) {
  const hashOf = (name: string) => hash("sha256", `oidc ${name}`, "hex");
  const noted = (session: Session, issuerId: string, times: Record<string, Instant>) =>
    throttle.latestIn(
      session,
      new Map(Object.entries(times).map(([name, at]) => [hashOf(`ended ${issuerId} ${name}`), at])),
      flowMs,
    );
  return {
    /**
     * In the transaction that begins a session: throws where a logout of the provider came while the sign-in
     * was under way. One that comes now waits for the commit, and ends the session.
     */
    async requireGoesOn(session: Session, { issuer, person, sid, askedAt }: Proven): Promise<void> {
      const { subject } = person;
      const own = sid === undefined ? `nameless ${subject}` : `session ${sid}`;
      if ((await noted(session, issuer.id, { [`person ${subject}`]: 0, [own]: 0 })) >= askedAt)
        throw new Fault("unauthenticated", "the provider ended its session meanwhile: sign in again");
    },

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
      const ended = await sessions.endOfIssuer(issuerId, async (session) => {
        if (!(await throttle.onceIn(session, hashOf(`logout ${issuerId} ${tokenId}`), flowMs)))
          return undefined;
        // A session of the provider never comes back; a person does.
        await noted(session, issuerId, {
          ...(sid !== undefined && { [`session ${sid}`]: Number.MAX_SAFE_INTEGER }),
          ...(subject !== undefined && {
            [`${sid === undefined ? "person" : "nameless"} ${subject}`]: clock.now(),
          }),
        });
        return {
          sid,
          subjectId: subject && (await rows.userOf(session, { orgId, issuer: url, subject })),
        };
      });
      if (ended === undefined)
        throw new Fault("invalid_argument", "logout_token: was used before", { field: "logout_token" });
      if (ended > 0) onEnded(orgId);
      log.info("issuer.logged_out", { issuer: issuerId, ended });
    },
  };
}
