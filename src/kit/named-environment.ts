/** What clients send that mean the environment of their key. */
const own = "current";

/** The environment that a header or a query names; undefined when it names none. */
export const namedEnvironment = (text: string | null | undefined): string | undefined =>
  !text || text === own ? undefined : text;
