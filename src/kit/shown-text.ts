/** What a terminal obeys (C0 but line ends and tabs, DEL, C1), and what turns the order of letters. */
const obeyed =
  /\r(?!\n)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text as a terminal may get it. Parts may come from anyone: they could move the cursor, change the title,
 * or look like another text. Such characters are escaped as in JSON, so that JSON keeps its value.
 */
export const shownText = (text: string): string =>
  text.replaceAll(obeyed, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
