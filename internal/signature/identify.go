package signature

import (
	"crypto/sha256"
	"encoding/hex"
)

// identify reads id, type and content hash of a message whose signature holds. Hashing the content once more costs as
// much as the MAC did, so a signed id, which no replay can change, stands for it.
func (r *reader) identify(v *Verdict) {
	s := r.s
	if s.typ.kind != placeNone {
		v.Type, _ = r.find(s.typ)
	}
	if s.id.kind != placeNone {
		if v.ID = r.id; v.ID == "" {
			v.ID, _ = r.find(s.id)
		}
	}
	if v.ID != "" && s.idSigned {
		v.IDSigned = true
		v.ContentHash = sha256.Sum256(r.keep(v.ID))
		return
	}
	v.ContentHash = r.hashContent()
	if v.ID != "" || s.spec.ID.None {
		return
	}
	// The body itself says whether it is JSON, for the content type is not signed.
	noJSON := s.id.kind == placeJSON && !looksJSON(r.doc) && !r.m.isJSONType()
	if s.spec.ID.Hash || noJSON {
		v.ID = "sha256:" + hex.EncodeToString(v.ContentHash[:])
		v.IDSigned = s.spec.Algorithm != Token && s.spec.Algorithm != Basic
	}
}
