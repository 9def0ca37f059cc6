import { signal } from "@preact/signals";
import { CallError, rest, setPlatform, whenSignedOut } from "./api.ts";

/** Who looks at the page, as `GET /api/v1/auth/session` says. */
export interface Viewer {
  id: string;
  kind: "key" | "user" | "platform" | "dev";
  email?: string;
  org_id: string;
  environment_id: string;
  roles: readonly string[];
  actions: readonly string[];
  impersonates: boolean;
}

/** `unknown` until the server has answered; `expired` keeps the page with what was typed. */
export type SignedState = "unknown" | "signed out" | "signed in" | "expired";

export const viewer = signal<Viewer | undefined>(undefined);
export const standing = signal<SignedState>("unknown");

export interface EnvironmentData {
  id: string;
  name: string;
  color?: string;
}

export const environments = signal<readonly EnvironmentData[]>([]);

/** Whether the viewer's roles grant it; the server judges each call anew. */
export const may = (action: string): boolean => viewer.value?.actions.includes(action) ?? false;

export async function loadSession(): Promise<void> {
  try {
    const found = await rest<Viewer>("/api/v1/auth/session", { isSigningIn: true });
    setPlatform(found.kind === "platform");
    viewer.value = found;
    if (found.actions.includes("functions:list"))
      environments.value = await rest<EnvironmentData[]>("/api/v1/environments", { isSigningIn: true });
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
  await rest("/api/v1/auth/logout", { method: "POST", isSigningIn: true });
  viewer.value = undefined;
  environments.value = [];
  standing.value = "signed out";
}
