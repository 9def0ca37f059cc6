import type { Fault } from "../../../kit/fault.ts";

const byKind = {
  invalid_argument: "begun_elsewhere",
  permission_denied: "refused",
  already_exists: "known",
  unauthenticated: "not_believed",
  unavailable: "provider_away",
  not_found: "no_issuer",
  resource_exhausted: "too_many",
} as const satisfies Partial<Record<Fault["kind"], string>>;

/** Why a sign-in was refused, as the address of the sign-in page says it: words of ours alone. */
export type SignInRefusal = (typeof byKind)[keyof typeof byKind] | "no_role" | "failed";

export function refusalOf({ kind, code }: Pick<Fault, "kind" | "code">): SignInRefusal {
  if (code === "NO_ROLE") return "no_role";
  return (byKind as Partial<Record<Fault["kind"], SignInRefusal>>)[kind] ?? "failed";
}

/** Where the browser of a refused sign-in goes. */
export const refusalPage = (fault: Pick<Fault, "kind" | "code">): string =>
  `/dashboard/sign-in?refused=${refusalOf(fault)}`;
