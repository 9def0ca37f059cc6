/** Where providers and browsers come back to. */
export const oidcPath = "/api/v1/auth/oidc";

/** A redirect URI of its own for each issuer: a code that one provider made never reaches another. */
export const callbackPath = (issuerId: string, end: "callback" | "logout"): string =>
  `${oidcPath}/${issuerId}/${end}`;
