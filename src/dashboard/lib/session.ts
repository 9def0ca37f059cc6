import { signal } from "@preact/signals";
import type { Static } from "@sinclair/typebox";
import type { SignInRefusal } from "../../domain/access/issuers/flow.ts";
import type { SelfShape } from "../../domain/access/sessions/operations.ts";
import type { EnvironmentShape } from "../../domain/access/tenancy/operations.ts";
import { CallError, rest, setPlatform, whenSignedOut } from "./api.ts";
import { address } from "./router.ts";

/** Who looks at the page, as `GET /api/v1/auth/session` says. */
export type Viewer = Static<typeof SelfShape>;

/** `unknown` until the server has answered; `expired` keeps the page with what was typed. */
export type SignedState = "unknown" | "signed out" | "signed in" | "expired";

export const viewer = signal<Viewer | undefined>(undefined);
export const standing = signal<SignedState>("unknown");

export type EnvironmentData = Static<typeof EnvironmentShape>;

export const environments = signal<readonly EnvironmentData[]>([]);

/** Whether the viewer's roles grant it; the server judges each call anew. */
export const may = (action: string): boolean => viewer.value?.actions.includes(action) ?? false;

/** Who signed in, wherever they look now; a user of the platform looks into the orgs of tenants. */
export const self = signal<Viewer | undefined>(undefined);

export const isPlatformUser = (): boolean => self.value?.kind === "platform";

/** A user of the platform who looks at the platform itself. */
export const isAtHome = (): boolean => viewer.value?.kind === "platform" && !viewer.value.impersonates;

/** The same, where the platform's own pages have a live connection. */
export const isLiveAtHome = (): boolean => isAtHome() && may("platform:tenants:read");

const askSession = () => rest<Viewer>("/api/v1/auth/session", { isSigningIn: true });

const askEnvironments = () => rest<EnvironmentData[]>("/api/v1/environments", { isSigningIn: true });

/** What the viewer may do where it looks, and the environments there, where they are `asked` already. */
async function look(found: Viewer, asked?: Promise<EnvironmentData[]>): Promise<void> {
  const known = found.actions.includes("functions:list") && found.environment_id !== "";
  environments.value = known ? await (asked ?? askEnvironments()) : [];
  viewer.value = found;
}

/** Asks anew in the org of the address, where a user of the platform has other rights than at home. */
export async function enterOrg(): Promise<void> {
  const { org } = address.value;
  const own = self.value;
  if (own?.kind !== "platform" || org === "" || org === viewer.value?.org_id) return;
  const found = org === own.org_id ? own : await askSession();
  if (address.value.org === org) await look(found);
}

export async function loadSession(): Promise<void> {
  try {
    setPlatform(undefined);
    // Both at once: the first page waits for them. A refusal to list environments is no error here.
    const asked = askEnvironments();
    asked.catch(() => {});
    const found = await askSession();
    const isPlatform = found.kind === "platform";
    setPlatform(isPlatform ? found.org_id : undefined);
    self.value = found;
    // A user of the platform has them of the org that it looks at.
    await look(found, isPlatform ? undefined : asked);
    standing.value = "signed in";
  } catch (error) {
    if (!(error instanceof CallError) || error.status !== 401) throw error;
    standing.value = "signed out";
  }
}

whenSignedOut(() => {
  if (standing.value === "signed in") standing.value = "expired";
});

export async function signIn(login: { email: string; password: string; isPlatform: boolean }): Promise<void> {
  const { isPlatform, ...body } = login;
  const path = isPlatform ? "/api/v1/platform/auth/login" : "/api/v1/auth/login";
  await rest(path, { body, isSigningIn: true });
  await loadSession();
}

export async function signInByLink(link: string): Promise<void> {
  await rest("/api/v1/auth/login-by-link", { body: { link }, isSigningIn: true });
  await loadSession();
}

export async function signOut(): Promise<void> {
  const atProvider = await rest<{ url: string } | undefined>("/api/v1/auth/logout", {
    ...{ method: "POST", isSigningIn: true },
  });
  if (atProvider) location.assign(atProvider.url);
  viewer.value = undefined;
  self.value = undefined;
  environments.value = [];
  standing.value = "signed out";
}

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
