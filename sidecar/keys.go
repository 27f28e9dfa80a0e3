package sidecar

import (
	"fmt"

	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/sidecar/keyfetch"
)

// newKeys makes what fetches the keys that senders publish, through the filter of egress, or the strictest where there is no
// egress.
func (s *Sidecar) newKeys() (*keyfetch.Fetcher, error) {
	strict, err := netguard.New(netguard.Config{})
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	return keyfetch.New(keyfetch.Config{
		Filter: func() *netguard.Filter {
			if e := s.current.Load().Egress; e != nil {
				return e.Filter
			}
			return strict
		},
		Logger:     s.log,
		Registerer: s.reg,
	})
}
