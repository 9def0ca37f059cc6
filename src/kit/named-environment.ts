/** What clients send that mean the environment of their key; none can have it as its name. */
export const ownEnvironment = "current";

/** The environment that a header or a query names; undefined when it names none. */
export const namedEnvironment = (text: string | null | undefined): string | undefined =>
  !text || text === ownEnvironment ? undefined : text;
