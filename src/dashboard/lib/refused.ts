import { signal } from "@preact/signals";
import type { SignInRefusal } from "../../domain/access/issuers/refusals.ts";

const again = "Begin again.";

const words: Record<SignInRefusal, string> = {
  begun_elsewhere: `This browser did not begin the sign-in, or too long ago. ${again}`,
  refused:
    "The provider refused the sign-in, or you may not sign in here. Ask an admin of your organization.",
  no_role: "No role is mapped to you here. Ask an admin of your organization.",
  known:
    "A user has your address, or you are joined to another user. Sign in by password, then join the sign-in: page Access, tab Sessions.",
  not_believed: `What the provider answered could not be believed. ${again}`,
  provider_away: "The provider gives no usable answer. Try again later.",
  no_issuer: "There is no such sign-in here any more.",
  too_many: "Too many sign-ins at once, or in vain. Try again in a minute.",
  failed: `The sign-in failed. ${again}`,
};

/** What the address says that a sign-in came to; it is said once. */
function takeRefusal(): string {
  const { pathname, search, hash } = location;
  const query = new URLSearchParams(search);
  const word = query.get("refused");
  if (word === null) return "";
  query.delete("refused");
  history.replaceState(null, "", `${pathname}${query.size > 0 ? `?${query}` : ""}${hash}`);
  return Object.hasOwn(words, word) ? words[word as SignInRefusal] : words.failed;
}

/** Why the sign-in that the browser comes back from was refused; empty for none. */
export const refused = signal(takeRefusal());
