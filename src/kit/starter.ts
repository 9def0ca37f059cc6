import type { Caller } from "./caller.ts";

/** Who asked for what is done later: the credential is looked up again when it is done. */
export type Starter = Pick<Caller, "kind" | "id" | "orgId" | "impersonates">;

export const starterOf = ({ kind, id, orgId, impersonates }: Caller): Starter => ({
  ...{ kind, id, orgId },
  ...(impersonates && { impersonates }),
});
