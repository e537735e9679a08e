package main

import (
	"context"
	"net"
)

// useClusterDNS makes every look-up of this process ask the DNS server at address, as a pod with the policy
// ClusterFirstWithHostNet does. Without an address nothing changes.
//
// The search list is this machine's, so callers write whole service names (name.namespace.svc).
func useClusterDNS(address string) {
	if address == "" {
		return
	}
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address)
		},
	}
}
