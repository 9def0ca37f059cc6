/** Where providers and browsers come back to. */
export const oidcPath = "/api/v1/auth/oidc";

/** A redirect URI of its own for each issuer: a code that one provider made never reaches another. */
export const callbackPath = (issuerId: string, end: "callback" | "logout"): string =>
  `${oidcPath}/${issuerId}/${end}`;

/** This server as the browser names it; undefined for what is no host. */
export function originOf({ isSecure, host }: { isSecure: boolean; host: string }): string | undefined {
  const origin = `${isSecure ? "https" : "http"}://${host}`;
  return /^[A-Za-z0-9.:[\]-]+$/.test(host) && URL.canParse(origin) ? origin : undefined;
}

/** Where a provider sends browsers that have signed out: to be registered there. */
export const signedOutPath = "/dashboard/";
