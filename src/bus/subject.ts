/** Whether a message may be sent to the subject: tokens with dots between, none of them empty or a wildcard. */
export const isSubject = (text: string): boolean =>
  !/[\s\p{Cc}]/u.test(text) &&
  text.split(".").every((token) => token !== "" && token !== "*" && token !== ">");
