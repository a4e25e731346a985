// How is text of others shown? As characters that can do nothing but be read.

export const TEXT_MAX = 10_000; // of one text on a page; `parts.value` shows longer ones on request

// Controls (but tab and line break), marks that reorder what stands around them, invisible ones, lone surrogates.
// What chooses between a sign and its emoji may stay.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2800\ufff9-\ufffb]|\p{Surrogate}|(?![\ufe0e\ufe0f])\p{Default_Ignorable_Code_Point}/gu;

export function readable(text, max = TEXT_MAX) {
  const whole = String(text);
  const cut = whole.length > max ? `${whole.slice(0, max)}…` : whole;
  return cut.replace(UNSEEN, (mark) => `\\u${mark.codePointAt(0).toString(16).padStart(4, "0")}`);
}
